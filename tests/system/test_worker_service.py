"""`shoal worker` as a service: for a limited time, until idle, with health checks, under a service manager."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.api.process import serve_api
from tests.servers import Server, free_port, wait_until
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


@dataclass
class Manager:
    """A service manager: the socket that it listens on, and all notifications that it got."""

    socket: socket.socket
    name: str

    def __post_init__(self) -> None:
        self.messages: list[dict[str, str]] = []

    def read(self) -> list[dict[str, str]]:
        with contextlib.suppress(BlockingIOError):
            while message := self.socket.recv(65536).decode():
                self.messages.append(dict(line.split("=", 1) for line in message.splitlines()))
        return self.messages

    def until(self, **fields: str) -> None:
        def is_received() -> bool:
            return any(fields.items() <= message.items() for message in self.read())

        wait_until(is_received, f"{fields} in {self.messages[-5:]}")


@pytest.fixture
def manager() -> Iterator[Manager]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        # An abstract name: the path of a test's folder may be too long.
        name = f"shoal-test-{os.getpid()}-{free_port()}"
        listener.bind(f"\0{name}")
        listener.setblocking(False)
        yield Manager(listener, f"@{name}")


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except OSError:
        return 0, {}
    finally:
        connection.close()


def submit(shell: Shell, store: Server, *args: object) -> str:
    result = shell.run("submit", "--store", store.url, "--scope", "any", *args)
    assert result.code == 0, result.err
    return result.out.strip()


def test_a_worker_until_idle_finishes_all_crawls_and_stops(site: Site, store: Server, shell: Shell) -> None:
    hosts = site.take(3)
    tree = site.plant(30, hosts)
    crawl = submit(shell, store, tree.url(0), "--delay", "0.05", "--out", shell.folder / "pages.jsonl")
    result = shell.run("worker", "--store", store.url, *LOCAL, "--workers", "2", "--until-idle")
    assert result.code == 0, result.err
    assert "Stopping, nothing is left to do" in result.err
    assert "\nStored 30 pages" in result.err
    shown = shell.counts(crawl, "--store", store.url)
    assert shown["state"] == "finished"
    assert not site.judge(*hosts).impolite(0.05)
    assert all(site.judge(*hosts).times(url) == 1 for url in tree.walk())


def test_a_worker_until_idle_stops_at_once_on_an_empty_store(store: Server, shell: Shell) -> None:
    result = shell.run("worker", "--store", store.url, "--workers", "1", "--until-idle")
    assert (result.code, "\nStored 0 pages" in result.err) == (0, True), result.err


def test_a_worker_until_idle_waits_for_a_cooling_host(site: Site, store: Server, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(3, [host])
    submit(shell, store, tree.url(0), "--delay", "2", "--out", shell.folder / "pages.jsonl")
    result = shell.run("worker", "--store", store.url, *LOCAL, "--workers", "1", "--until-idle")
    assert "\nStored 3 pages" in result.err
    assert not site.judge(host).impolite(2)


def test_a_worker_stops_after_its_time_and_has_released_its_leases(site: Site, store: Server, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(20, [host])
    crawl = submit(shell, store, tree.url(0), "--delay", "60", "--out", shell.folder / "pages.jsonl")
    result = shell.run("worker", "--store", store.url, *LOCAL, "--workers", "1", "--for", "4s", "--until-idle")
    assert result.code == 0, result.err
    assert "Stopping after the time of --for" in result.err
    counts = shell.counts(crawl, "--store", store.url)["counts"]
    assert counts["leased"] == 0
    assert counts["waiting"] > 0


def test_a_worker_that_waits_for_politeness_is_healthy_and_one_that_is_stuck_is_not(
    site: Site, store: Server, shell: Shell
) -> None:
    (host,) = site.take()
    port = free_port()
    tree = site.plant(5, [host])
    submit(shell, store, tree.url(0), "--delay", "600", "--out", shell.folder / "pages.jsonl")
    shell.environ["SHOAL_WORKER_PARSE_SECONDS"] = "1"
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "2", "--health", str(port))
    wait_until(lambda: get(port, "/readyz") == (200, {"ready": True}), "the workers are ready")
    wait_until(lambda: site.judge(host).paths(host), "the first page was requested")
    # Nothing happens to the host for much longer than a stuck worker is given.
    for _ in range(8):
        assert get(port, "/healthz") == (200, {"alive": True})
        time.sleep(1.0)
    assert get(port, "/metrics")[0] == 404
    stuck, _ = worker.workers()
    os.kill(stuck, signal.SIGSTOP)
    wait_until(lambda: get(port, "/healthz")[0] == 503, "the stuck worker is noticed")
    status, body = get(port, "/healthz")
    assert status == 503
    assert body["problem"].startswith("No report from ")
    os.kill(stuck, signal.SIGCONT)
    wait_until(lambda: get(port, "/healthz")[0] == 200, "it is alive again")
    assert worker.end(signal.SIGTERM).code == 0


def test_the_health_command_checks_workers_and_servers(store: Server, shell: Shell, tmp_path: Path) -> None:
    port = free_port()
    shell.environ["SHOAL_API_PORT"] = str(free_port())
    nobody = shell.run("health")
    assert (nobody.code, "No worker or server listens for health checks" in nobody.err) == (1, True), nobody.err
    shell.environ |= {"SHOAL_WORKER_HEALTH": f"0.0.0.0:{port}", "SHOAL_WORKER_PARSE_SECONDS": "1"}
    worker = shell.start("worker", "--store", store.url, "--workers", "1")
    wait_until(lambda: shell.run("health", "--ready").code == 0, "the worker is ready")
    assert shell.run("health").out == "alive\n"
    (pid,) = worker.workers()
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: get(port, "/healthz")[0] == 503, "the stuck worker is noticed")
    stuck = shell.run("health")
    assert (stuck.code, "No report from " in stuck.err) == (1, True), stuck.err
    os.kill(pid, signal.SIGCONT)
    assert worker.end(signal.SIGTERM).code == 0
    with serve_api(tmp_path / "api", "--store", store.url) as api:
        assert shell.run("health", "--port", str(api.port)).out == "alive\n"
        # No worker listens on the port of workers any more: the next port is that of the server.
        shell.environ["SHOAL_API_PORT"] = str(api.port)
        assert shell.run("health", "--ready").out == "ready\n"


def test_an_address_for_health_checks_that_is_in_use_is_an_error(store: Server, shell: Shell) -> None:
    result = shell.run("worker", "--store", store.url, "--health", f"127.0.0.1:{store.port}")
    assert result.code == 2, result.err
    assert f"Cannot answer health checks at 127.0.0.1:{store.port}: Address already in use." in result.err
    result = shell.run("worker", "--store", store.url, "--health", "everywhere")
    assert "but must be empty, a port like 8081, or an address and a port like 0.0.0.0:8081" in result.err


def test_systemd_is_notified_of_start_watchdog_and_end_of_workers(
    store: Server, shell: Shell, manager: Manager
) -> None:
    shell.environ |= {
        "NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "1000000", "SHOAL_WORKER_PARSE_SECONDS": "1",
    }  # fmt: skip
    port = free_port()
    worker = shell.start("worker", "--store", store.url, "--workers", "1", "--health", str(port))
    manager.until(READY="1")
    wait_until(lambda: get(port, "/readyz")[0] == 200, "the worker has reported")
    manager.until(WATCHDOG="1", STATUS="1 of 1 worker, 0 pages stored")
    (pid,) = wait_until(worker.workers, "the worker runs")
    os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: manager.read()[-1].get("STATUS", "").startswith("No report from "), "the stuck worker is reported"
    )
    assert "WATCHDOG" not in manager.messages[-1]
    os.kill(pid, signal.SIGCONT)
    manager.messages.clear()
    manager.until(WATCHDOG="1")
    assert worker.end(signal.SIGTERM).code == 0
    manager.until(STOPPING="1")


def test_systemd_is_notified_of_start_watchdog_and_end_of_the_api(
    store: Server, tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.name)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    with serve_api(tmp_path / "api", "--store", store.url) as api:
        manager.until(READY="1", STATUS=f"Serving {store.url} at {api.url}")
        manager.until(WATCHDOG="1")
    manager.until(STOPPING="1")
