"""scrapy-redis' own tests, from its source distribution, on the shim: all pass except those in the table, which fail.

Each row has a reason, and the guide has the same table. The tests are fetched, not part of this repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shoal.scrapy.shim import VERSION
from tests.scrapy.packages import source_of
from tests.scrapy.processes import ROOT
from tests.servers import server

_QUEUE = "a queue class is only a name for SCHEDULER_QUEUE_CLASS: requests are in the frontier, and the error says so"
_SCHEDULER = "the scheduler works only inside a running crawl: the test calls it without an engine or event loop"
_READS = "Shoal's scheduler reads start URLs, so that a crash loses none; the spider itself does not pop them"
# Why a test of scrapy-redis fails here, by its name.
FAILING = {
    "test_picklecompat": "nothing is pickled or unpickled",
    "TestBaseQueue.test_encode_decode_requests": _QUEUE,
    "TestBaseQueue.test_custom_serializer": _QUEUE,
    "FifoQueueTest.test_clear": _QUEUE,
    "FifoQueueTest.test_queue": _QUEUE,
    "LifoQueueTest.test_clear": _QUEUE,
    "LifoQueueTest.test_queue": _QUEUE,
    "PriorityQueueTest.test_clear": _QUEUE,
    "PriorityQueueTest.test_queue": _QUEUE,
    "SchedulerTest.test_scheduler": _SCHEDULER,
    "SchedulerTest.test_scheduler_persistent": _SCHEDULER,
    "TestRedisMixin_setup_redis.test_via_from_crawler": _READS,
    "test_consume_urls_from_redis": _READS,
}
_ALL = 49
# scrapy-redis' tests are older than pytest 8, which does not call `setup` any more.
_CONFTEST = """
import importlib.util
import pytest
from scrapy.utils.reactor import install_reactor

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "scrapy_redis" else find_spec(name, *rest)
import shoal.scrapy.shim

install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")

@pytest.fixture(autouse=True)
def call_setup(request):
    if hasattr(request.instance, "setup"):
        request.instance.setup()
"""


@pytest.mark.full
def test_scrapy_redis_own_tests_pass_on_the_shim_except_those_in_the_table(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(source_of(f"scrapy-redis=={VERSION}") / "tests", suite)
    (suite / "conftest.py").write_text(_CONFTEST)
    (suite / "pytest.ini").write_text("[pytest]\n")
    with server(tmp_path / "store") as store:
        host, _, port = store.url.removeprefix("redis://").partition(":")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("REDIS_", "SHOAL_"))}
        environment |= {"PYTHONPATH": str(ROOT / "src"), "REDIS_HOST": host, "REDIS_PORT": port}
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", str(tmp_path / "results")]
        run = subprocess.run(argv, cwd=suite, env=environment, capture_output=True, text=True, timeout=300, check=False)
    results = list(ElementTree.parse(tmp_path / "results").getroot().iter("testcase"))  # noqa: S314 - pytest's own
    assert len(results) == _ALL, run.stdout[-3000:]
    failed = {_name(case) for case in results if case.find("failure") is not None or case.find("error") is not None}
    assert failed == FAILING.keys(), run.stdout[-3000:]


def _name(case: ElementTree.Element) -> str:
    """The class and the function, without parameters."""
    kind = case.attrib["classname"].rpartition(".")[2]
    function = re.sub(r"\[.*", "", case.attrib["name"])
    return function if kind.startswith("test_") else f"{kind}.{function}"


def test_the_guide_has_the_same_table() -> None:
    guide = (ROOT / "docs" / "guides" / "scrapy.md").read_text()
    rows = dict(re.findall(r"^\| (`[^|]*`) \| ([^|]+) \|$", guide, re.MULTILINE))
    reasons = {name: reason for names, reason in rows.items() for name in re.findall(r"`([^`]+)`", names)}
    assert {name: reasons.get(name) for name in FAILING} == FAILING
