"""The container image: built on a Debian base, and crawling with a read-only root as an unprivileged user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.version import __version__
from tests.deploy.engine import Engine, engine
from tests.deploy.helm import ROOT
from tests.servers import Server, free_port, wait_until
from tests.site.site import Site
from tests.system.shell import Shell

pytestmark = [pytest.mark.full, pytest.mark.long]


@pytest.fixture(scope="module")
def images() -> Iterator[Engine]:
    with engine() as podman:
        podman.build(
            "shoal:plain", ROOT / "Dockerfile", ROOT, BASE="localhost/shoal-base", LOCK="run", VERSION=__version__
        )
        yield podman


def test_the_image_runs_as_an_unprivileged_user_and_has_no_build_tools(images: Engine) -> None:
    image = images.inspect("shoal:plain")
    assert image["User"] == "10001:10001"
    config = image["Config"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["shoal"]
    assert image["Healthcheck"]["Test"] == ["CMD", "shoal", "health"]
    assert image["Labels"]["org.opencontainers.image.version"] == __version__
    assert images.run("shoal:plain", "--version", options=("--rm",)) == f"shoal {__version__}"
    tools = (
        "command -v gcc cc make pip; ls /opt/shoal/bin/pip 2>/dev/null; touch /x 2>/dev/null && echo writable; "
        "find /opt -name __pycache__; id -u"
    )
    assert images.run("shoal:plain", "-c", tools, options=("--rm", "--entrypoint", "sh")) == "10001"
    # What the image adds to its base. docs/operations/containers.md states it.
    base = images.inspect("localhost/shoal-base")["Size"]
    print(f"base {base / 1e6:.0f} MB, shoal:plain {image['Size'] / 1e6:.0f} MB")
    assert image["Size"] - base < 150e6


def test_containers_crawl_and_lose_nothing_when_one_is_killed(
    images: Engine, site: Site, store: Server, shell: Shell, tmp_path: Path
) -> None:
    hosts = site.take(6)
    tree = site.plant(120, hosts)
    secret = tmp_path / "store.url"
    secret.write_text(f"{store.url}\n")
    secret.chmod(0o644)
    ports = [free_port(), free_port()]

    def start(port: int) -> str:
        return images.run(
            "shoal:plain", "worker", "--workers", "1",
            options=(
                "--detach", "--volume", f"{secret}:/run/secrets/store:ro",
                "--env", "SHOAL_STORE_FILE=/run/secrets/store",
                "--env", f"SHOAL_OUTPUTS_RESULTS={store.url}/0/results", "--env", f"SHOAL_WORKER_HEALTH={port}",
                "--env", "SHOAL_FETCH_ALLOW_NETWORKS=127.0.0.0/8", "--env", "SHOAL_FRONTIER_LEASE_SECONDS=3",
            ),
        )  # fmt: skip

    first, second = map(start, ports)

    def healthy(container: str) -> bool:
        return images.podman("healthcheck", "run", container, check=False).returncode == 0

    wait_until(lambda: healthy(first) and healthy(second), "both containers are healthy")
    result = shell.run(
        "submit", "--store", store.url, "--scope", "any", "--delay", "0.1", "--out", "results", "--name", "boxed",
        tree.url(0),
    )  # fmt: skip
    assert result.code == 0, result.err
    wait_until(lambda: len(site.requests(*hosts)) > 20, "the crawl is on its way")
    images.podman("kill", "--signal", "KILL", first)
    wait_until(lambda: shell.counts("boxed", "--store", store.url)["state"] == "finished", "the crawl is finished", 300)
    records = [json.loads(record)["url"] for record in store.ask("LRANGE", "results", 0, -1)]
    assert sorted(set(records)) == sorted(tree.walk())
    assert not site.judge(*hosts).hasty(0.1)
    images.podman("stop", "--time", "60", second)
    (state,) = json.loads(images.podman("inspect", second).stdout)
    assert state["State"]["ExitCode"] == 0, images.podman("logs", second).stderr
    assert '"workers.stopped"' in images.podman("logs", second).stderr


def test_the_image_with_every_extra_has_them(images: Engine) -> None:
    images.build("shoal:all", ROOT / "Dockerfile", ROOT, BASE="localhost/shoal-base", LOCK="all")
    modules = (
        "aio_pika, asyncmy, asyncpg, confluent_kafka, obstore, opentelemetry.sdk, parsel, prometheus_client, pyarrow, "
        "scrapy, starlette"
    )
    python = ("--rm", "--entrypoint", "/opt/shoal/bin/python")
    assert images.run("shoal:all", "-c", f"import {modules}; print('all')", options=python) == "all"
    print(f"shoal:all {images.inspect('shoal:all')['Size'] / 1e6:.0f} MB")
