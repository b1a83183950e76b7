"""The names of scrapy-redis mean the same here: compared with its own source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import Settings

import shoal.scrapy
from shoal.errors import SettingsError
from shoal.operations.scrapy_crawl import digest
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.crawl_join import name_of
from shoal.scrapy.spider_arguments import of_command_line
from shoal.store.address import parse_address
from tests.scrapy.processes import needs_scrapy_redis

ROOT = Path(__file__).resolve().parents[2]
# Scrapy's own, which scrapy-redis only reads.
_SCRAPYS = {"CONCURRENT_REQUESTS", "DUPEFILTER_CLASS", "DUPEFILTER_DEBUG"}
# The name of a default in scrapy_redis.defaults, where it is not the setting's own.
_DEFAULTS = {
    "REDIS_START_URLS_KEY": "START_URLS_KEY", "REDIS_START_URLS_AS_SET": "START_URLS_AS_SET",
    "REDIS_START_URLS_AS_ZSET": "START_URLS_AS_ZSET", "REDIS_ITEMS_KEY": "PIPELINE_KEY",
    "MAX_IDLE_TIME_BEFORE_CLOSE": "MAX_IDLE_TIME", "CONCURRENT_REQUESTS": "REDIS_CONCURRENT_REQUESTS",
    "DUPEFILTER_CLASS": "SCHEDULER_DUPEFILTER_CLASS",
}  # fmt: skip


@pytest.fixture(scope="module")
def source() -> dict[str, str]:
    folder = needs_scrapy_redis()
    return {path.stem: path.read_text() for path in folder.glob("*.py")}


def test_every_setting_that_scrapy_redis_reads_is_in_the_table(source: dict[str, str]) -> None:
    read: set[str] = set()
    for text in source.values():
        read |= set(re.findall(r'settings(?:\.get\w*\(\s*|\[)["\']([A-Z_]+)["\']', text))
        # "queue_key": "SCHEDULER_QUEUE_KEY" and "REDIS_URL": "url" in tables of its own.
        read |= set(re.findall(r'["\'](?:\w+)["\']: ["\'](SCHEDULER_\w+|DUPEFILTER_\w+)["\']', text))
        read |= set(re.findall(r'["\'](REDIS_[A-Z_]+)["\']\]? ?[:=] ["\']\w+["\']', text))
    assert read, "the pattern finds nothing any more"
    assert read <= scrapy_redis_settings.NAMES.keys()
    # And what its documentation names besides.
    documented = {"REDIS_START_URLS_BATCH_SIZE", "SCHEDULER_DUPEFILTER_KEY"}
    assert scrapy_redis_settings.NAMES.keys() - read <= documented | _SCRAPYS


def test_defaults_are_those_of_scrapy_redis(source: dict[str, str]) -> None:
    namespace: dict[str, Any] = {}
    text = source["defaults"].replace("import redis", "").replace("redis.StrictRedis", "None")
    exec(text, namespace)  # noqa: S102 - scrapy-redis' own constants
    for name, (default, _) in scrapy_redis_settings.NAMES.items():
        theirs = namespace.get(_DEFAULTS.get(name, name))
        if name not in ("REDIS_PARAMS",):
            assert default == theirs or (not default and not theirs), name


def test_the_guide_has_every_setting() -> None:
    guide = (ROOT / "docs" / "guides" / "scrapy.md").read_text()
    for name in scrapy_redis_settings.NAMES:
        assert f"`{name}`" in guide, name


_STORES: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"REDIS_URL": "redis://h:1/2"}, "redis://h:1/2"),
        ({"REDIS_HOST": "h"}, "redis://h:6379/0"),
        ({"REDIS_PORT": 7000, "REDIS_DB": 3}, "redis://localhost:7000/3"),
        ({"REDIS_URL": "redis://a", "REDIS_HOST": "b"}, "redis://a"),
        ({"REDIS_PARAMS": {"host": "a", "password": "p/@"}, "REDIS_HOST": "b"}, "redis://:p%2F%40@b:6379/0"),
        ({"REDIS_PARAMS": {"url": "redis://a/1", "password": "p"}}, "redis://:p@a/1"),
        ({"REDIS_URL": "redis://a/1?socket_timeout=3&db=2"}, "redis://a/1?db=2"),
        ({"REDIS_PARAMS": {"unix_socket_path": "/run/r", "db": 2}}, "unix:///run/r?db=2"),
        ({"REDIS_HOST": "::1", "REDIS_PARAMS": {"ssl": True, "ssl_cert_reqs": "none"}},
         "rediss://[::1]:6379/0?ssl_cert_reqs=none"),
        ({"REDIS_URL": "redis://:q@a:7/1", "REDIS_PARAMS": {"password": "p", "host": "c", "db": 4}}, "redis://:q@a:7/1"),
        ({"REDIS_HOST": "b", "REDIS_PARAMS": {"port": 7, "db": 4, "username": "u", "password": "p"}},
         "redis://u:p@b:7/4"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "url"), _STORES)
def test_the_store_is_found_by_scrapy_redis_precedence(settings: dict[str, Any], url: str | None) -> None:
    address = scrapy_redis_settings.store_url(Settings(settings), reads_start_urls=False)
    assert address == url
    if address is not None:
        parse_address(address)


@pytest.mark.parametrize("settings", [settings for settings, _ in _STORES])
def test_scrapy_redis_own_code_finds_the_same_store(settings: dict[str, Any]) -> None:
    needs_scrapy_redis()
    from redis import Redis
    from scrapy_redis.connection import get_redis_from_settings

    def where(client: Any) -> tuple[Any, ...]:
        connection = client.connection_pool.connection_kwargs
        if "path" in connection:
            return connection["path"], connection.get("db") or 0, connection.get("username"), connection.get("password")
        defaults = {"host": "localhost", "port": 6379, "db": 0, "username": None, "password": None}
        return tuple(connection.get(name) or default for name, default in defaults.items())

    ours = scrapy_redis_settings.store_url(Settings(settings), reads_start_urls=True)
    assert ours is not None
    assert where(Redis.from_url(ours)) == where(get_redis_from_settings(Settings(settings)))


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ({}, {}),
        ({"REDIS_START_URLS_KEY": "%(name)s:begin", "CONCURRENT_REQUESTS": 7, "REDIS_ENCODING": "latin-1"}, {}),
        ({"REDIS_START_URLS_KEY": "no", "CONCURRENT_REQUESTS": 7, "REDIS_ENCODING": "no"},
         {"redis_key": "%(name)s:mine", "redis_batch_size": "5", "redis_encoding": "utf-16"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["RedisSpider", "RedisCrawlSpider"])
def test_spiders_override_settings_and_settings_override_defaults_as_in_scrapy_redis(
    kind: str, settings: dict[str, Any], own: dict[str, Any]
) -> None:
    needs_scrapy_redis()
    import scrapy_redis.spiders
    from scrapy.utils.test import get_crawler

    spider_options = []
    for module in (scrapy_redis.spiders, shoal.scrapy):
        spider: Any = type("Books", (getattr(module, kind),), {"name": "books", **own})
        made = spider.from_crawler(get_crawler(spider, settings))
        spider_options.append((made.redis_key, made.redis_batch_size, made.redis_encoding))
    assert spider_options[0] == spider_options[1]


def test_a_spider_that_reads_start_urls_uses_localhost_by_default() -> None:
    assert scrapy_redis_settings.store_url(Settings(), reads_start_urls=True) == "redis://localhost:6379/0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scrapy_redis.queue.FifoQueue", ("fifo", True)),
        ("scrapy_redis.queue.SpiderQueue", ("fifo", True)),
        ("scrapy_redis.queue.LifoQueue", ("lifo", True)),
        ("scrapy_redis.queue.SpiderStack", ("lifo", True)),
        ("scrapy_redis.queue.PriorityQueue", ("fifo", False)),
        ("scrapy_redis.queue.SpiderPriorityQueue", ("fifo", False)),
    ],
)
def test_queue_classes_select_the_order(name: str, expected: tuple[str, bool]) -> None:
    assert scrapy_redis_settings.order(Settings({"SCHEDULER_QUEUE_CLASS": name})) == expected


def test_another_queue_class_is_refused_with_the_available_ones() -> None:
    with pytest.raises(SettingsError, match=r"'my\.Queue': use one of FifoQueue"):
        scrapy_redis_settings.order(Settings({"SCHEDULER_QUEUE_CLASS": "my.Queue"}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.0, 8)),
        ({"DOWNLOAD_DELAY": 1.5}, (1.5, 1)),
        ({"CONCURRENT_REQUESTS_PER_DOMAIN": 100}, (0.0, 32)),
        ({"AUTOTHROTTLE_ENABLED": True}, (0.0, 1)),
    ],
)
def test_delay_and_slots_come_from_scrapys_settings(settings: dict[str, Any], expected: tuple[float, int]) -> None:
    spider: Any = _Spider()
    limits = scrapy_redis_settings.limits(Settings(settings), spider, tag="scrapy:x")
    assert (limits.delay_seconds, limits.places) == expected
    limits.check()


class _Spider:
    name = "books"


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        ({}, {}, "books"),
        # An upgrade that changes these takes running crawls from their projects.
        ({}, {"b": "2", "a": "1"}, "books.a.b-0560b15a74"),
        ({"SCHEDULER_QUEUE_KEY": "%(spider)s:queue"}, {"b": "2"}, "books:queue"),
    ],
)
def test_a_crawl_is_named_by_its_key_or_by_spider_and_arguments(
    settings: dict[str, Any], arguments: dict[str, Any], expected: str
) -> None:
    spider: Any = _Spider()
    assert name_of(spider, Settings(settings), arguments) == expected


def test_an_invalid_name_of_a_crawl_is_encoded_and_stays_distinct() -> None:
    spider: Any = _Spider()
    first, second = (name_of(spider, Settings(), {f"start{end}": "1"}) for end in "?!")
    assert re.fullmatch(r"books\.start--[0-9a-f]{10}-[0-9a-f]{10}", first)
    assert first != second


def test_spider_arguments_are_read_as_scrapy_does() -> None:
    assert of_command_line(["-a", "x=1=2", "-aa=1", "-s", "X=1", "-a"]) == {"x": "1=2", "a": "1"}


class _Tool:
    """Has no repr of its own."""


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (7, "7", True),
        (7, 8, False),
        ([1, {"b": 2, "a": 3}], [1, {"a": 3, "b": 2}], True),
        ({"x", "y"}, {"x", "z"}, False),
        (_Tool(), _Tool(), True),
        ({(1, 2): _Tool()}, {(1, 2): _Tool()}, True),
        ("\ud800", "\ud801", False),
    ],
)
def test_arguments_are_distinguished_by_values_that_are_equal_in_every_process(
    first: Any, second: Any, same: bool
) -> None:
    assert (digest({"a": first}) == digest({"a": second})) is same
