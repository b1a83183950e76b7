"""`workers_wanted` drives real workers, as an autoscaler would: they join when hosts can be served, and drain after."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.api.process import ApiProcess, serve_api
from tests.servers import Server, wait_until
from tests.site.site import Site
from tests.system.shell import LOCAL, Running, Shell

pytestmark = [pytest.mark.full, pytest.mark.chaos]
HOSTS_PER_WORKER = 4
DELAY_SECONDS = 0.2


class Autoscaler:
    """Starts and stops one worker at a time, until there are as many as `workers_wanted` says."""

    def __init__(self, api: ApiProcess, shell: Shell, store: Server) -> None:
        self._client = api.client
        self._shell = shell
        self._store = store
        self.running: list[Running] = []
        self.stopped: list[str] = []
        self.most = 0

    def step(self) -> int:
        target = int(self._client.stats()["workers_wanted"])
        if target > len(self.running):
            worker = self._shell.start("worker", "--store", self._store.url, *LOCAL, "--workers", "1")
            worker.wait_for_output("1 worker on")
            self.running.append(worker)
            self.most = max(self.most, len(self.running))
        elif target < len(self.running):
            # Kubernetes does not choose the idle ones, either.
            ended = self.running.pop(0).end(signal.SIGTERM)
            assert ended.code == 0, ended.err
            self.stopped.append(ended.err)
        time.sleep(0.2)
        return target


def test_workers_join_for_hosts_and_drain_when_the_hosts_are_done(
    site: Site, store: Server, shell: Shell, tmp_path: Path
) -> None:
    few, many = site.take(2), site.take(14)
    small, large = site.plant(40, few), site.plant(280, many)
    shell.environ |= {
        "SHOAL_WORKER_HOSTS": str(HOSTS_PER_WORKER), "SHOAL_OUTPUTS_RESULTS": f"{store.url}/0/results",
    }  # fmt: skip
    with serve_api(tmp_path / "api", "--store", store.url) as api:
        scaler = Autoscaler(api, shell, store)
        assert scaler.step() == 0
        assert scaler.running == []

        def submit(name: str, url: str) -> None:
            result = shell.run(
                "submit", "--store", store.url, "--scope", "any", "--delay", DELAY_SECONDS, "--out", "results",
                "--name", name, url,
            )  # fmt: skip
            assert result.code == 0, result.err

        def finished(*names: str) -> bool:
            scaler.step()
            return all(api.client.crawl(name)["state"] == "finished" for name in names)

        submit("small", small.url(0))
        wait_until(lambda: scaler.step() and len(site.requests(*few)) > 10, "the small crawl is on its way")
        # Two hosts are work for one worker, however many URLs wait.
        assert scaler.most == 1
        submit("large", large.url(0))
        wait_until(lambda: finished("small", "large"), "both crawls are finished", 300)
        assert scaler.most >= 3
        wait_until(lambda: scaler.step() == 0 and not scaler.running, "all workers have left")
    records = {json.loads(record)["url"] for record in store.ask("LRANGE", "results", 0, -1)}
    assert records == {*small.walk(), *large.walk()}
    assert site.judge(*few, *many).impolite(DELAY_SECONDS) == []
    # The hosts were shared with the workers that joined.
    assert sum("\nStored 0 pages" not in text for text in scaler.stopped) >= 3
