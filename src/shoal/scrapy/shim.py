"""`import shoal.scrapy.shim` in settings.py: a project's imports from scrapy_redis resolve to Shoal.

It is for machines without scrapy-redis. Where scrapy-redis is installed, it does nothing.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any, NoReturn

from shoal.errors import InvalidInput
from shoal.scrapy import DupeFilter, RedisCrawlSpider, RedisPipeline, RedisSpider, RedisStatsCollector, Scheduler
from shoal.scrapy.redis_client import PARAMS, get_redis, get_redis_from_settings, redis_class
from shoal.scrapy.spiders import RedisMixin


class FifoQueue:
    """A name for SCHEDULER_QUEUE_CLASS."""


class LifoQueue:
    """A name for SCHEDULER_QUEUE_CLASS."""


class PriorityQueue:
    """A name for SCHEDULER_QUEUE_CLASS."""


def bytes_to_str(s: Any, encoding: str = "utf-8") -> Any:
    return s.decode(encoding) if isinstance(s, bytes) else s


def is_dict(string_content: str | bytes) -> bool:
    """Whether the text is valid JSON. scrapy-redis has this name for it."""
    try:
        json.loads(string_content)
    except ValueError:
        return False
    return True


def _unpickle(*_: Any) -> NoReturn:
    raise InvalidInput(
        "scrapy_redis.picklecompat is not supported: Shoal does not read or write pickles, because they can run "
        "arbitrary code; use json or msgpack."
    )


def _default(name: str) -> Any:
    if name == "REDIS_CLS":
        return redis_class()
    raise AttributeError(f"module 'scrapy_redis.defaults' has no attribute {name!r}")


MODULES: dict[str, dict[str, Any]] = {
    "scheduler": {"Scheduler": Scheduler},
    "dupefilter": {"RFPDupeFilter": DupeFilter},
    "pipelines": {"RedisPipeline": RedisPipeline},
    "spiders": {"RedisMixin": RedisMixin, "RedisSpider": RedisSpider, "RedisCrawlSpider": RedisCrawlSpider},
    "stats": {"RedisStatsCollector": RedisStatsCollector},
    "connection": {
        "get_redis": get_redis, "get_redis_from_settings": get_redis_from_settings,
        "from_settings": get_redis_from_settings,
    },
    "utils": {"bytes_to_str": bytes_to_str, "is_dict": is_dict},
    "picklecompat": {"loads": _unpickle, "dumps": _unpickle},
    "defaults": {
        "DUPEFILTER_KEY": "dupefilter:%(timestamp)s", "PIPELINE_KEY": "%(spider)s:items",
        "STATS_KEY": "%(spider)s:stats", "REDIS_ENCODING": "utf-8", "REDIS_PARAMS": PARAMS,
        "REDIS_CONCURRENT_REQUESTS": 16, "SCHEDULER_QUEUE_KEY": "%(spider)s:requests",
        "SCHEDULER_QUEUE_CLASS": "scrapy_redis.queue.PriorityQueue",
        "SCHEDULER_DUPEFILTER_KEY": "%(spider)s:dupefilter",
        "SCHEDULER_DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter", "SCHEDULER_PERSIST": False,
        "START_URLS_KEY": "%(name)s:start_urls", "START_URLS_AS_SET": False, "START_URLS_AS_ZSET": False,
        "MAX_IDLE_TIME": 0, "__getattr__": _default,
    },
    "queue": {
        "FifoQueue": FifoQueue, "LifoQueue": LifoQueue, "PriorityQueue": PriorityQueue,
        "SpiderQueue": FifoQueue, "SpiderStack": LifoQueue, "SpiderPriorityQueue": PriorityQueue,
    },
}  # fmt: skip


def install() -> bool:
    """Register the modules; False where scrapy-redis is installed."""
    if "scrapy_redis" in sys.modules or importlib.util.find_spec("scrapy_redis") is not None:
        return False
    package = ModuleType("scrapy_redis", "Shoal in place of scrapy-redis.")
    package.__path__ = []
    sys.modules["scrapy_redis"] = package
    for name, members in MODULES.items():
        module = ModuleType(f"scrapy_redis.{name}")
        vars(module).update(members)
        sys.modules[module.__name__] = module
        setattr(package, name, module)
    return True


install()
