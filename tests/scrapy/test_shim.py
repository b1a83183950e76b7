"""Where scrapy-redis is not installed, the shim stands in for what projects import from it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from shoal.scrapy.shim import MODULES
from tests.scrapy.processes import ROOT, needs_scrapy_redis

_PROGRAM = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "scrapy_redis" else found(name, *rest)
import shoal.scrapy.shim
import shoal.scrapy
from scrapy import Request
from scrapy.utils.misc import load_object
from scrapy.utils.reactor import install_reactor
from scrapy.utils.test import get_crawler
install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
from scrapy_redis.spiders import RedisSpider, RedisCrawlSpider, RedisMixin
from scrapy_redis.pipelines import RedisPipeline
assert RedisSpider is shoal.scrapy.RedisSpider
assert load_object("scrapy_redis.scheduler.Scheduler") is shoal.scrapy.Scheduler
assert load_object("scrapy_redis.dupefilter.RFPDupeFilter").__module__ == "scrapy_redis.dupefilter"
from scrapy_redis import get_redis
assert load_object("scrapy_redis.stats.RedisStatsCollector") is shoal.scrapy.RedisStatsCollector
for name in ("FifoQueue", "LifoQueue", "PriorityQueue", "SpiderQueue", "SpiderStack", "SpiderPriorityQueue"):
    load_object(f"scrapy_redis.queue.{name}")
from scrapy_redis import connection, defaults, utils, picklecompat
from scrapy_redis.connection import from_settings, get_redis, get_redis_from_settings
import redis, scrapy.settings
assert defaults.REDIS_CLS is redis.Redis
assert not hasattr(defaults, "NOTHING")
assert utils.bytes_to_str(b"a") == utils.bytes_to_str("a") == "a"
assert isinstance(get_redis(url="redis://localhost/3"), redis.Redis)
for settings, where in (
    ({}, ("localhost", 6379, 0, None)),
    ({"REDIS_HOST": "h", "REDIS_PORT": 7, "REDIS_PARAMS": {"password": "p", "db": 2}}, ("h", 7, 2, "p")),
    ({"REDIS_URL": "redis://u:p@h:1/4", "REDIS_PARAMS": {"socket_timeout": 9}}, ("h", 1, 4, "p")),
    ({"SHOAL_STORE_URL": "valkey://s:5/1"}, ("s", 5, 1, None)),
):
    made = from_settings(scrapy.settings.Settings(settings)).connection_pool.connection_kwargs
    assert tuple(made.get(name) for name in ("host", "port", "db", "password")) == where, made
    assert made["socket_timeout"] == (9 if "REDIS_URL" in settings else 30)
assert from_settings(scrapy.settings.Settings({"REDIS_DECODE_RESPONSES": 1})).get_encoder().decode_responses
for call in (lambda: picklecompat.loads(b""), lambda: picklecompat.dumps(1)):
    try:
        call()
    except Exception as error:
        assert "does not read or write pickles" in str(error)
    else:
        raise AssertionError("a pickle was served")
sys.modules["redis"] = None
try:
    get_redis()
except Exception as error:
    assert str(error).endswith("which is not installed; run: pip install redis."), error
else:
    raise AssertionError("a client without its package")

class Feeding(RedisSpider):
    name = "feeding"

    def parse(self, response): ...

spider = Feeding.from_crawler(get_crawler(Feeding))
try:
    spider.server
except AttributeError as error:
    assert str(error).endswith("which is not installed; run: pip install redis."), error
else:
    raise AssertionError("a client without its package")
assert Request("http://example.org/", callback=spider.parse).to_dict(spider=spider)["callback"] == "parse"
print("served")
"""


@pytest.mark.full
def test_imports_from_scrapy_redis_are_served_by_shoal() -> None:
    paths = [os.environ.get("OTHER_SCRAPY", ""), str(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "served\n", run.stderr


@pytest.mark.full
def test_code_that_can_unpickle_is_loaded_only_for_a_drain() -> None:
    program = "import sys, shoal.scrapy; print('shoal.scrapy.import_scrapy_redis' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "False\n", run.stderr


def test_defaults_of_the_shim_are_scrapy_redis_own() -> None:
    needs_scrapy_redis()
    theirs = {
        name: value for name, value in vars(importlib.import_module("scrapy_redis.defaults")).items() if name.isupper()
    }
    ours = MODULES["defaults"]
    theirs.pop("REDIS_CLS")
    assert {name: value for name, value in ours.items() if name.isupper()} == theirs
