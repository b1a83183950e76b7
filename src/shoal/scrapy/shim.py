"""`import shoal.scrapy.shim` in settings.py: what a project imports from scrapy_redis comes from here.

For machines where scrapy-redis is not installed; where it is, nothing changes.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

from shoal.scrapy import DupeFilter, RedisCrawlSpider, RedisPipeline, RedisSpider, RedisStatsCollector, Scheduler
from shoal.scrapy.spiders import RedisMixin


class FifoQueue:
    """A name for SCHEDULER_QUEUE_CLASS."""


class LifoQueue:
    """A name for SCHEDULER_QUEUE_CLASS."""


class PriorityQueue:
    """A name for SCHEDULER_QUEUE_CLASS."""


MODULES: dict[str, dict[str, Any]] = {
    "scheduler": {"Scheduler": Scheduler},
    "dupefilter": {"RFPDupeFilter": DupeFilter},
    "pipelines": {"RedisPipeline": RedisPipeline},
    "spiders": {"RedisMixin": RedisMixin, "RedisSpider": RedisSpider, "RedisCrawlSpider": RedisCrawlSpider},
    "stats": {"RedisStatsCollector": RedisStatsCollector},
    "queue": {
        "FifoQueue": FifoQueue, "LifoQueue": LifoQueue, "PriorityQueue": PriorityQueue,
        "SpiderQueue": FifoQueue, "SpiderStack": LifoQueue, "SpiderPriorityQueue": PriorityQueue,
    },
}  # fmt: skip


def install() -> bool:
    """Put the modules in place; False where scrapy-redis itself is there."""
    if "scrapy_redis" in sys.modules or importlib.util.find_spec("scrapy_redis") is not None:
        return False
    package = ModuleType("scrapy_redis", "Shoal in the place of scrapy-redis.")
    package.__path__ = []
    sys.modules["scrapy_redis"] = package
    for name, members in MODULES.items():
        module = ModuleType(f"scrapy_redis.{name}")
        vars(module).update(members)
        sys.modules[module.__name__] = module
        setattr(package, name, module)
    return True


install()
