"""The Compose files, started by real Compose on a real Docker engine in a separate machine.

Images of services are stand-ins with Debian's packages (tests/deploy/standin). It takes minutes: make deploy-test.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.deploy.engine import engine, system
from tests.deploy.helm import ROOT
from tests.deploy.machine import SITES, Machine, docker
from tests.scrapy.test_example import plant_videos
from tests.servers import wait_until
from tests.site.responses import robots
from tests.site.site import Site

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.environ.get("DEPLOYMENT") != "1", reason="takes minutes; run: make deploy-test"),
]
STANDINS = ("valkey", "postgres", "mariadb", "prometheus")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with Docker, the image of Shoal, images of services, and the files of the repository."""
    shared = tmp_path_factory.mktemp("machine")
    for folder in ("deploy", "examples"):
        shutil.copytree(
            ROOT / folder, shared / folder, ignore=shutil.ignore_patterns("secrets", ".shoal", "__pycache__")
        )
    shutil.copytree(ROOT / "tests/deploy/standin", shared / "standin")
    with docker(shared) as made:
        with engine() as builder:
            builder.build("shoal:all", ROOT / "Dockerfile", ROOT, BASE="localhost/shoal-base", LOCK="all")
            shutil.move(builder.save("localhost/shoal:all", "shoal:latest"), shared / "shoal.tar")
        made.run("docker", "load", "--input", "/test/shoal.tar")
        (shared / "shoal.tar").unlink()
        shutil.copy(system("services"), shared / "services.tar")
        made.run("docker", "import", "/test/services.tar", "services")
        (shared / "services.tar").unlink()
        for name in STANDINS:
            made.run("docker", "build", "--target", name, "--tag", f"standin-{name}", "/test/standin",
                     environ={"DOCKER_BUILDKIT": "0"})  # fmt: skip
        yield made


def containers(box: Machine, project: str) -> dict[str, dict[str, Any]]:
    names = box.run(
        "docker", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={project}"
    ).stdout
    details = json.loads(box.run("docker", "inspect", *names.split()).stdout)
    return {container["Name"].removeprefix("/"): container for container in details}


def kill(box: Machine, container: str) -> None:
    """kill -9 of its first process, as the kernel does when memory ends. Docker itself is not involved."""
    box.run("kill", "-9", box.inspect(container)["State"]["Pid"])


def test_three_workers_crawl_into_postgresql_and_lose_nothing_when_one_is_killed(box: Machine, web: Site) -> None:
    hosts = web.take(6)
    tree = web.plant(240, hosts)
    folder = "/test/deploy/compose"
    environ = {
        "STORE_IMAGE": "standin-valkey", "DATABASE_IMAGE": "standin-postgres", "PROMETHEUS_IMAGE": "standin-prometheus",
        "SHOAL_FETCH_ALLOW_NETWORKS": SITES,
    }  # fmt: skip

    def compose(*args: object) -> str:
        return box.run("docker", "compose", *args, folder=folder, environ=environ).stdout

    box.run("./setup", folder=folder)
    compose("up", "--detach", "--wait", "--scale", "worker=3")
    running = containers(box, "shoal")
    assert {name: container["State"]["Health"]["Status"] for name, container in running.items()} == dict.fromkeys(
        ("shoal-store-1", "shoal-database-1", "shoal-api-1", *(f"shoal-worker-{n}" for n in (1, 2, 3))), "healthy"
    )
    token = box.shared / "deploy/compose/secrets/token_admin"

    def shoal(*args: object) -> str:
        command = (sys.executable, "-m", "shoal", *args, "--store", "http://127.0.0.1:8080")
        return box.outside(*command, SHOAL_TOKEN_FILE=str(token)).stdout

    shoal("submit", tree.url(0), "--scope", "any", "--delay", "0.2", "--out", "results", "--name", "boxed")
    wait_until(lambda: len(web.requests(*hosts)) > 40, "the crawl is on its way")
    kill(box, "shoal-worker-2")
    wait_until(
        lambda: json.loads(shoal("show", "boxed", "--json"))["state"] == "finished", "the crawl is finished", 300
    )
    rows = compose("exec", "--no-TTY", "database", "psql", "--username", "shoal", "--tuples-only", "--no-align",
                   "--command", "SELECT url FROM pages").split()  # fmt: skip
    assert sorted(rows) == sorted(tree.walk())
    assert {request.url for request in web.requests(*hosts)} >= set(tree.walk())
    assert not web.judge(*hosts).hasty(0.2)
    # Docker started the killed one again.
    killed = box.inspect("shoal-worker-2")
    assert (killed["RestartCount"], killed["State"]["Running"]) == (1, True)

    compose("--profile", "monitoring", "up", "--detach", "prometheus")
    # prometheus.yaml and its alert rules as they are, with the token that setup has made.
    wait_until(lambda: _answer(box, "shoal_workers") == "3", "Prometheus has the workers of the fleet")
    # An internal network has no way out, and the store is in no other.
    inside = box.inspect("shoal-store-1")["NetworkSettings"]["Networks"]
    assert list(inside) == ["shoal_inside"]
    compose("stop", "worker")
    codes = {
        name: container["State"]["ExitCode"] for name, container in containers(box, "shoal").items() if "worker" in name
    }
    assert codes == dict.fromkeys((f"shoal-worker-{n}" for n in (1, 2, 3)), 0)
    compose("--profile", "monitoring", "down", "--volumes")


def _answer(box: Machine, query: str) -> str:
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:9090/api/v1/query?query={quote(query)}').read().decode())"
    process = box.outside(sys.executable, "-c", fetch, check=False)
    result = json.loads(process.stdout)["data"]["result"] if process.returncode == 0 else []
    return str(result[0]["value"][1]) if result else ""


@pytest.mark.parametrize("how", ["seeded by every container", "submitted"])
def test_three_spiders_complete_mysql_and_downloads_when_one_is_killed(box: Machine, web: Site, how: str) -> None:
    (host,) = web.take(1)
    web.at(host, "/robots.txt", robots("User-agent: *\nDisallow:\n"))
    titles = plant_videos(web, host, "7")
    folder = "/test/examples/scrapy_mysql"
    arguments = f"-a site=http://{host} -a channel=7"
    environ = {
        "STORE_IMAGE": "standin-valkey", "DATABASE_IMAGE": "standin-mariadb", "MYSQL_PASSWORD": "hunter2",
        "DOWNLOAD_DELAY": "0.3", "DOCKER_BUILDKIT": "0",
    }  # fmt: skip
    if how != "submitted":
        environ |= {"SPIDER_COMMAND": f"scrapy crawl channel {arguments}", "SPIDER_RESTART": "on-failure"}

    def compose(*args: object, check: bool = True) -> str:
        return box.run("docker", "compose", *args, folder=folder, check=check, environ=environ).stdout

    compose("up", "--detach", "--scale", "spider=3")
    if how == "submitted":
        submit = f"shoal submit --store redis://store:6379 --spider channel {arguments}"
        compose("exec", "--no-TTY", "spider", *submit.split())
    wait_until(lambda: len(web.requests(host)) > 10, "the spiders are at work")
    kill(box, "scrapy_mysql-spider-2")
    before = {request.url for request in web.requests(host)}
    sql = "SELECT title, thumbnails FROM videos"

    def rows() -> list[list[str]]:
        text = compose(
            "exec", "--no-TTY", "--env", "MYSQL_PWD=hunter2", "database", "mariadb", "--user=videos", "--batch",
            "--skip-column-names", "--execute", sql, "videos", check=False,
        )  # fmt: skip
        return [line.split("\t") for line in text.splitlines()]

    wait_until(lambda: len(rows()) == 20, "all rows", 300)
    assert {title for title, _ in rows()} == titles
    for title, thumbnail in rows():
        text = compose("exec" if how == "submitted" else "run", *_ONCE[how], "spider", "cat", f"/downloads/{thumbnail}")
        assert text == f"image of {title}"
    requests = web.judge(host)
    assert not requests.impolite(0.3)
    # Only what the killed one had requested and not acknowledged was requested again, once.
    assert set(requests.repeated()) <= before
    assert set(requests.repeated().values()) <= {2}
    assert requests.times(f"http://{host}/robots.txt") == 1
    assert box.inspect("scrapy_mysql-spider-2")["RestartCount"] == 1
    compose("stop", "spider")
    codes = {
        name: container["State"]["ExitCode"]
        for name, container in containers(box, "scrapy_mysql").items()
        if "-spider-" in name
    }
    assert set(codes.values()) == {0}, codes
    compose("down", "--volumes")


# A container whose crawl is finished is down; another one reads the volume.
_ONCE = {"submitted": ("--no-TTY",), "seeded by every container": ("--rm", "--no-deps", "--no-TTY")}
