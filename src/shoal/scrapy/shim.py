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
from shoal.scrapy import (
    RedisCrawlSpider,
    RedisPipeline,
    RedisSpider,
    RedisStatsCollector,
    Scheduler,
    scrapy_redis_dupefilter,
)
from shoal.scrapy.redis_client import PARAMS, get_redis, get_redis_from_settings, redis_class
from shoal.scrapy.spiders import RedisMixin

# The release of scrapy-redis whose names these are.
VERSION = "0.9.1"


class Base:
    """The queues are names for SCHEDULER_QUEUE_CLASS. The frontier is the queue."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise InvalidInput(
            f"scrapy_redis.queue.{type(self).__name__} is only a name for SCHEDULER_QUEUE_CLASS: requests are in "
            "Shoal's frontier; yield them from a spider, or push URLs to its redis_key."
        )


class FifoQueue(Base):
    pass


class LifoQueue(Base):
    pass


class PriorityQueue(Base):
    pass


def bytes_to_str(s: Any, encoding: str = "utf-8") -> Any:
    return s.decode(encoding) if isinstance(s, bytes) else s


def convert_bytes_to_str(data: Any, encoding: str = "utf-8") -> Any:
    """The same with text in place of bytes, also for the keys and values of a dict."""
    if isinstance(data, dict):
        return {bytes_to_str(name, encoding): bytes_to_str(value, encoding) for name, value in data.items()}
    return bytes_to_str(data, encoding)


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
    "pipelines": {"RedisPipeline": RedisPipeline},
    "spiders": {"RedisMixin": RedisMixin, "RedisSpider": RedisSpider, "RedisCrawlSpider": RedisCrawlSpider},
    "stats": {"RedisStatsCollector": RedisStatsCollector},
    "connection": {
        "get_redis": get_redis, "get_redis_from_settings": get_redis_from_settings,
        "from_settings": get_redis_from_settings,
    },
    "utils": {"bytes_to_str": bytes_to_str, "convert_bytes_to_str": convert_bytes_to_str, "is_dict": is_dict},
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
        "Base": Base, "FifoQueue": FifoQueue, "LifoQueue": LifoQueue, "PriorityQueue": PriorityQueue,
        "SpiderQueue": FifoQueue, "SpiderStack": LifoQueue, "SpiderPriorityQueue": PriorityQueue,
    },
}  # fmt: skip


def install() -> bool:
    """Register the modules; False where scrapy-redis is installed."""
    if "scrapy_redis" in sys.modules or importlib.util.find_spec("scrapy_redis") is not None:
        return False
    package = ModuleType("scrapy_redis", "Shoal in place of scrapy-redis.")
    package.__path__ = []
    vars(package).update(
        get_redis=get_redis, get_redis_from_settings=get_redis_from_settings, __version__=VERSION,
        __author__="Shoal's shim", __email__="none",
    )  # fmt: skip
    sys.modules["scrapy_redis"] = package
    sys.modules["scrapy_redis.dupefilter"] = scrapy_redis_dupefilter
    vars(package)["dupefilter"] = scrapy_redis_dupefilter
    for name, members in MODULES.items():
        module = ModuleType(f"scrapy_redis.{name}")
        vars(module).update(members)
        sys.modules[module.__name__] = module
        setattr(package, name, module)
    return True


install()
