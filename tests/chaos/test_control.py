"""A control of the kill test: with the destructive pop of scrapy-redis it finds lost pages."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.fleet import ROOT
from tests.chaos.notes import read
from tests.chaos.site import Site
from tests.servers import server

pytestmark = [pytest.mark.chaos, pytest.mark.full]


def test_scrapy_redis_loses_pages_when_its_workers_are_killed(tmp_path: Path) -> None:
    if importlib.util.find_spec("scrapy_redis") is None:
        pytest.skip("scrapy-redis is not installed; run: pip install -r requirements/bench.txt")
    site, sink = Site(pages=500, hosts=12), tmp_path / "sink"
    workers: list[subprocess.Popen[bytes]] = []
    with server(tmp_path / "store") as store, (tmp_path / "errors").open("wb") as errors:

        def start() -> None:
            argv = [sys.executable, "-m", "tests.chaos.scrapy_redis_worker", "--port", store.port, "--sink", sink]
            argv += ["--pages", site.pages, "--hosts", site.hosts, "--request", 0.01]
            paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
            workers.append(
                subprocess.Popen([str(word) for word in argv], cwd=ROOT, env=environment, stdout=errors, stderr=errors)
            )

        try:
            start()
            start()
            deadline = time.monotonic() + 20
            for kill in range(3):
                while sum(1 for _ in read(sink)) < 40 * (kill + 1):
                    assert time.monotonic() < deadline, (tmp_path / "errors").read_text()[-1000:]
                    time.sleep(0.01)
                workers[kill].kill()
                start()
            for worker in workers:
                worker.wait(60)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        recorded = Counter(line[2] for line in read(sink))
        missing = site.walk() - set(recorded)
        assert missing, "this kill test finds nothing where something is lost for certain"
