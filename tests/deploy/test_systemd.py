"""The units on a real systemd, process 1 of a separate machine. It takes minutes: make deploy-test."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.deploy.engine import engine
from tests.deploy.helm import ROOT
from tests.deploy.machine import SITES, Machine, machine
from tests.servers import wait_until
from tests.site.site import Site

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.environ.get("DEPLOYMENT") != "1", reason="takes minutes; run: make deploy-test"),
]
STORE = "redis://127.0.0.1:6379"
UNIT = "shoal-worker@1"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with systemd, and Shoal as docs/operations/services.md installs it."""
    shared = tmp_path_factory.mktemp("machine")
    init = ("/lib/systemd/systemd", "--unit=basic.target")
    with machine(shared, init, own_cgroups=True) as made:
        with engine() as builder:
            builder.build("shoal:plain", ROOT / "Dockerfile", ROOT, BASE="localhost/shoal-base", LOCK="run")
            container = builder.podman("create", "localhost/shoal:plain").stdout.strip()
            builder.podman("cp", f"{container}:/opt/shoal", made.root / "opt/shoal")
        etc = made.root / "etc"
        (etc / "shoal").mkdir()
        (etc / "shoal/shoal.env").write_text(
            f"SHOAL_STORE={STORE}/0\nSHOAL_OUTPUTS_RESULTS={STORE}/0/results\nSHOAL_FETCH_ALLOW_NETWORKS={SITES}\n"
            # A stuck worker is reported after two seconds and not after a minute.
            "SHOAL_WORKER_PARSE_SECONDS=1\n"
        )
        (etc / "shoal/shoal.env").chmod(0o600)
        for unit in (ROOT / "deploy/systemd").glob("*.service"):
            shutil.copy(unit, etc / "systemd/system")
        # The only change of the unit: a watchdog that bites soon enough for a test.
        (etc / f"systemd/system/{UNIT}.service.d").mkdir()
        (etc / f"systemd/system/{UNIT}.service.d/test.conf").write_text("[Service]\nWatchdogSec=5\n")
        (server,) = (made.root / "opt/shoal").rglob("valkey-server")
        (etc / "systemd/system/store.service").write_text(
            f"[Service]\nExecStart=/{server.relative_to(made.root)} --appendonly yes\nStateDirectory=store\n"
            "WorkingDirectory=/var/lib/store\n"
        )
        # Nobody configures its network, and it is there from the start.
        (etc / "systemd/system/systemd-networkd-wait-online.service").symlink_to("/dev/null")
        wait_until(lambda: made.run("systemctl", "daemon-reload", check=False).returncode == 0, "systemd answers")
        yield made


def show(box: Machine, name: str) -> str:
    return box.run("systemctl", "show", "--value", "--property", name, UNIT).stdout.strip()


def shoal(box: Machine, *args: object) -> str:
    return box.outside(sys.executable, "-m", "shoal", *args, "--store", f"{STORE}/0").stdout


def test_systemd_waits_for_the_unit_and_restarts_it_when_it_is_killed_or_stuck(box: Machine, web: Site) -> None:
    # Started is not ready: without a store the unit is activating.
    box.run("systemctl", "start", "--no-block", UNIT)
    wait_until(lambda: show(box, "ActiveState") == "activating" and show(box, "MainPID") != "0", "it starts")
    assert box.run("systemctl", "is-active", UNIT, check=False).stdout.strip() == "activating"
    box.run("systemctl", "start", "store")
    wait_until(lambda: show(box, "ActiveState") == "active", "it is ready")
    wait_until(lambda: "pages" in show(box, "StatusText"), "it reports to systemctl status")
    # A user of its own, without rights.
    pid = show(box, "MainPID")
    status = box.run("cat", f"/proc/{pid}/status").stdout
    assert "\nUid:\t0\t" not in status
    assert "\nCapEff:\t0000000000000000\n" in status

    hosts = web.take(4)
    tree = web.plant(160, hosts)
    shoal(box, "submit", tree.url(0), "--scope", "any", "--delay", "0.2", "--out", "results", "--name", "units")
    wait_until(lambda: len(web.requests(*hosts)) > 30, "the crawl is on its way")
    box.run("kill", "-9", pid)
    wait_until(lambda: show(box, "NRestarts") == "1" and show(box, "ActiveState") == "active", "systemd restarts it")
    wait_until(lambda: json.loads(shoal(box, "show", "units", "--json"))["state"] == "finished", "it is over", 300)
    assert sorted({json.loads(record)["url"] for record in _records(box)}) == sorted(tree.walk())
    assert not web.judge(*hosts).hasty(0.2)

    # A worker whose loop is stuck: its supervisor gives no sign of life, and systemd ends the unit.
    main = show(box, "MainPID")
    worker = box.run("pgrep", "-P", main, "-f", "shoal.worker").stdout.split()[0]
    box.run("kill", "-STOP", worker)
    wait_until(lambda: show(box, "NRestarts") == "2" and show(box, "ActiveState") == "active", "the watchdog bites")
    assert show(box, "MainPID") != main
    journal = box.run("journalctl", "--unit", UNIT, "--no-pager").stdout
    assert "Watchdog timeout" in journal

    box.run("systemctl", "stop", UNIT)
    assert show(box, "Result") == "success"
    assert show(box, "ExecMainStatus") == "0"


def _records(box: Machine) -> list[str]:
    """The rows of the output."""
    read = f"import redis; [print(row.decode()) for row in redis.Redis.from_url('{STORE}/0').lrange('results', 0, -1)]"
    return box.outside(sys.executable, "-c", read).stdout.splitlines()
