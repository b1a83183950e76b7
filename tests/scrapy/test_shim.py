"""Where scrapy-redis is not installed, the shim stands in for what projects import from it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.scrapy.processes import ROOT

_PROGRAM = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "scrapy_redis" else found(name, *rest)
import shoal.scrapy.shim
import shoal.scrapy
from scrapy.utils.misc import load_object
from scrapy_redis.spiders import RedisSpider, RedisCrawlSpider, RedisMixin
from scrapy_redis.pipelines import RedisPipeline
assert RedisSpider is shoal.scrapy.RedisSpider
assert load_object("scrapy_redis.scheduler.Scheduler") is shoal.scrapy.Scheduler
assert load_object("scrapy_redis.dupefilter.RFPDupeFilter") is shoal.scrapy.DupeFilter
assert load_object("scrapy_redis.stats.RedisStatsCollector") is shoal.scrapy.RedisStatsCollector
for name in ("FifoQueue", "LifoQueue", "PriorityQueue", "SpiderQueue", "SpiderStack", "SpiderPriorityQueue"):
    load_object(f"scrapy_redis.queue.{name}")
print("served")
"""


def test_imports_from_scrapy_redis_are_served_by_shoal() -> None:
    paths = [os.environ.get("OTHER_SCRAPY", ""), str(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "served\n", run.stderr


def test_what_can_unpickle_is_loaded_only_where_a_drain_is_asked_for() -> None:
    program = "import sys, shoal.scrapy; print('shoal.scrapy.drain' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "False\n", run.stderr
