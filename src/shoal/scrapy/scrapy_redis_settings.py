"""scrapy-redis' settings: their names, defaults and effect in Shoal. A test compares them with scrapy-redis' source.

Owns how a Scrapy project's settings become Shoal's. No other module reads a setting with a scrapy-redis name.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple
from urllib.parse import quote

from scrapy import Spider
from scrapy.core import downloader
from scrapy.settings import BaseSettings

from shoal.errors import InvalidLimit, SettingsError
from shoal.model.limits import Limits
from shoal.model.validation import number

log = logging.getLogger("shoal.scrapy")


class SettingName(NamedTuple):
    # scrapy-redis' default.
    default: Any
    # What the setting does in Shoal.
    effect: str


# In the order of scrapy-redis' documentation. docs/guides/scrapy.md has the same table.
NAMES: dict[str, SettingName] = {
    "REDIS_URL": SettingName(None, "the store"),
    "REDIS_HOST": SettingName(None, "the store's host; REDIS_URL takes precedence"),
    "REDIS_PORT": SettingName(None, "the store's port"),
    "REDIS_DB": SettingName(None, "the store's database"),
    "REDIS_PARAMS": SettingName(
        None, "host, port, db, username, password, ssl..., unix_socket_path and url; the rest is unused"
    ),
    "REDIS_ENCODING": SettingName("utf-8", "the encoding of start URLs, if redis_encoding is not set"),
    "REDIS_DECODE_RESPONSES": SettingName(None, "for spider.server only: start URLs are always bytes"),
    "SCHEDULER_PERSIST": SettingName(False, "keep a finished crawl open, with its seen URLs"),
    "SCHEDULER_FLUSH_ON_START": SettingName(False, "start a new crawl, unless another process works on it"),
    "SCHEDULER_IDLE_BEFORE_CLOSE": SettingName(0, "seconds to wait for more requests after the crawl is finished"),
    "SCHEDULER_QUEUE_KEY": SettingName("%(spider)s:requests", "the name of the crawl"),
    "SCHEDULER_QUEUE_CLASS": SettingName(
        "scrapy_redis.queue.PriorityQueue", "the Priority, Fifo or Lifo queue; other classes are refused"
    ),
    "SCHEDULER_DUPEFILTER_KEY": SettingName("%(spider)s:dupefilter", "unused: seen URLs are part of the crawl"),
    "DUPEFILTER_CLASS": SettingName(
        "scrapy_redis.dupefilter.RFPDupeFilter",
        "a class other than Scrapy's, scrapy-redis' and Shoal's decides by itself",
    ),
    "DUPEFILTER_DEBUG": SettingName(None, "log every filtered request"),
    "SCHEDULER_SERIALIZER": SettingName(None, "unused: requests are msgpack"),
    "REDIS_START_URLS_KEY": SettingName("%(name)s:start_urls", "the key of start URLs, if redis_key is not set"),
    "REDIS_START_URLS_AS_SET": SettingName(False, "the start URLs are a set"),
    "REDIS_START_URLS_AS_ZSET": SettingName(False, "the start URLs are a sorted set, highest score first"),
    "REDIS_START_URLS_BATCH_SIZE": SettingName(None, "start URLs per batch; default CONCURRENT_REQUESTS"),
    "CONCURRENT_REQUESTS": SettingName(16, "also start URLs per batch, if redis_batch_size is not set"),
    "MAX_IDLE_TIME_BEFORE_CLOSE": SettingName(
        0, "seconds without a start URL after which a RedisSpider closes; 0 means never"
    ),
    "REDIS_ITEMS_KEY": SettingName("%(spider)s:items", "the list RedisPipeline appends to"),
    "REDIS_ITEMS_SERIALIZER": SettingName(None, "path of the function that serializes an item to text or bytes"),
    "STATS_KEY": SettingName("%(spider)s:stats", "the hash RedisStatsCollector writes to"),
}

# How often the key of start URLs is polled while it is empty.
POLL_SECONDS = 0.08
_UNUSED = ("SCHEDULER_DUPEFILTER_KEY", "SCHEDULER_SERIALIZER")
_UNUSED_OF_SCRAPY = {
    "SCHEDULER_DISK_QUEUE": "requests are in the store",
    "SCHEDULER_MEMORY_QUEUE": "requests are in the store; SCHEDULER_QUEUE_CLASS chooses their order",
    "SCHEDULER_PRIORITY_QUEUE": "requests are in the store; SCHEDULER_QUEUE_CLASS chooses their order",
    "CONCURRENT_REQUESTS_PER_IP": "concurrency and delay are per host",
    "ROBOTSTXT_PARSER": "all processes share the rules that Shoal's parser reads",
}
# Limits of a crawl for all processes together; Scrapy's CLOSESPIDER_* count in each process.
_FLEET_LIMITS: dict[str, tuple[str, type[int] | type[float]]] = {
    "SHOAL_MAX_PAGES": ("max_pages", int),
    "SHOAL_MAX_PAGES_PER_HOST": ("max_pages_per_host", int),
    "SHOAL_MAX_TIME": ("max_seconds", float),
}
_ORDERS = {
    "FifoQueue": ("fifo", True), "SpiderQueue": ("fifo", True),
    "LifoQueue": ("lifo", True), "SpiderStack": ("lifo", True),
    "PriorityQueue": ("fifo", False), "SpiderPriorityQueue": ("fifo", False),
}  # fmt: skip
# Duplicate filters that the frontier replaces.
_FILTERS = ("scrapy.dupefilters.RFPDupeFilter", "scrapy_redis.dupefilter.RFPDupeFilter")
_MAX_SLOTS = 32
# The downloader of Scrapy 2.13 reads download_delay and max_concurrent_requests from the spider; newer versions put
# them into the settings.
_concurrency_delay = getattr(downloader, "_get_concurrency_delay", None)


def value(settings: BaseSettings, name: str) -> Any:
    """The setting, or scrapy-redis' default."""
    setting = settings.get(name)
    return NAMES[name].default if setting is None or setting == "" else setting


def store_url(settings: BaseSettings, *, reads_start_urls: bool) -> str | None:
    """The URL of the store in the project's settings; None without one.

    The precedence is scrapy-redis': REDIS_URL and the other settings override REDIS_PARAMS, and a URL overrides a host.
    For a spider that reads its start URLs from Redis, the default is localhost, as in scrapy-redis.
    """
    params = {name: value for name, value in settings.getdict("REDIS_PARAMS").items() if value not in (None, "")}
    for setting, name in (("REDIS_URL", "url"), ("REDIS_HOST", "host"), ("REDIS_PORT", "port"), ("REDIS_DB", "db")):
        if configured := settings.get(setting):
            params[name] = configured
    if url := params.get("url"):
        return _with_credentials(str(url), params)
    if path := params.get("unix_socket_path"):
        return f"unix://{_login(params)}{path}" + (f"?db={int(params['db'])}" if params.get("db") else "")
    if not params.keys() & {"host", "port", "db", "password", "username"} and not reads_start_urls:
        return None
    scheme = "rediss" if params.get("ssl") in (True, "True", "true", 1) else "redis"
    host = str(params.get("host", "localhost"))
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    url = f"{scheme}://{_login(params)}{host}:{int(params.get('port', 6379))}/{int(params.get('db', 0))}"
    options = [f"{name}={quote(str(params[name]))}" for name in _TLS if scheme == "rediss" and name in params]
    return url + ("?" + "&".join(options) if options else "")


_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


def _login(params: dict[str, Any]) -> str:
    user, password = params.get("username", ""), params.get("password", "")
    if not user and not password:
        return ""
    return f"{quote(str(user), safe='')}:{quote(str(password), safe='')}@"


def _with_credentials(url: str, params: dict[str, Any]) -> str:
    scheme, separator, rest = url.partition("://")
    login = _login(params)
    if login and "@" not in rest.partition("/")[0]:
        url = f"{scheme}{separator}{login}{rest}"
    # Other parameters of a redis-py URL configure redis-py's connections, which Shoal does not use.
    head, separator, query = url.partition("?")
    kept = [pair for pair in query.split("&") if pair.partition("=")[0] in (*_TLS, "db", "username", "password")]
    return head + ("?" + "&".join(kept) if separator and kept else "")


def key_of(template: object, spider_name: str) -> str:
    """The key of a template with %(spider)s or %(name)s."""
    return str(template) % {"spider": spider_name, "name": spider_name}


def crawl_name(settings: BaseSettings, spider_name: str) -> str | None:
    """The name in SCHEDULER_QUEUE_KEY; None where it is not set."""
    key = settings.get("SCHEDULER_QUEUE_KEY")
    return key_of(key, spider_name) if key else None


class Order(NamedTuple):
    order: str
    flat: bool


def order(settings: BaseSettings) -> Order:
    """The order of a host's requests; `flat` means that priorities are ignored."""
    queue_class = value(settings, "SCHEDULER_QUEUE_CLASS")
    name = queue_class if isinstance(queue_class, str) else queue_class.__name__
    known = _ORDERS.get(name.rpartition(".")[2])
    if known is None:
        raise SettingsError(f"Unsupported SCHEDULER_QUEUE_CLASS {name!r}: use one of {', '.join(sorted(_ORDERS))}.")
    return Order(*known)


def limits(settings: BaseSettings, spider: Spider, *, tag: str) -> Limits:
    """The limits of the whole fleet. A delay means one request at a time, because each slot keeps its own delay."""
    delay, concurrency = _pace(settings, spider)
    if concurrency > _MAX_SLOTS:
        log.warning("CONCURRENT_REQUESTS_PER_DOMAIN is %d; the maximum is %d.", concurrency, _MAX_SLOTS)
    return Limits(
        delay_seconds=delay, places=_host_slots(settings, delay, concurrency), order=order(settings).order, spider=tag,
        **_fleet_limits(settings),
    )  # fmt: skip


def _fleet_limits(settings: BaseSettings) -> dict[str, Any]:
    limits = {}
    for name, (field, kind) in _FLEET_LIMITS.items():
        if (setting := settings.get(name)) is None:
            continue
        try:
            limits[field] = kind(setting)
        except (TypeError, ValueError):
            unit = "whole number" if kind is int else "number of seconds"
            raise SettingsError(f"{name} is {setting!r}: use a {unit}, or 0 for no limit.") from None
    return limits


class Slot(NamedTuple):
    delay_seconds: float
    # How many slots the host has.
    places: int


def slots(settings: BaseSettings, spider: Spider) -> dict[str, Slot]:
    """The slots of DOWNLOAD_SLOTS by host name, without a port."""
    by_host = {}
    default_delay, default_concurrency = _pace(settings, spider)
    for host, entry in settings.getdict("DOWNLOAD_SLOTS").items():
        try:
            delay = number("delay", float(entry.get("delay", default_delay)), 0, 86400)
            concurrency = int(entry.get("concurrency", default_concurrency))
        except (AttributeError, TypeError, ValueError, InvalidLimit):
            raise SettingsError(
                f"Invalid DOWNLOAD_SLOTS entry {entry!r:.80} for {host}: it must be a dict with a delay in seconds "
                "(0 to 86400) and a concurrency."
            ) from None
        by_host[str(host)] = Slot(delay, _host_slots(settings, delay, concurrency))
    return by_host


def _pace(settings: BaseSettings, spider: Spider) -> tuple[float, int]:
    delay, concurrency = settings.getfloat("DOWNLOAD_DELAY"), settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
    if _concurrency_delay is not None:
        concurrency, delay = _concurrency_delay(concurrency, spider, settings)
    return delay, concurrency


def _host_slots(settings: BaseSettings, delay: float, concurrency: int) -> int:
    if delay > 0 or settings.getbool("AUTOTHROTTLE_ENABLED"):
        return 1
    return max(1, min(concurrency or _MAX_SLOTS, _MAX_SLOTS))


def filtered_by_frontier(settings: BaseSettings) -> bool:
    """Whether the frontier filters duplicates; otherwise the project's own class does."""
    filter_class = settings.get("DUPEFILTER_CLASS")
    return filter_class is None or (isinstance(filter_class, str) and filter_class in _FILTERS)


def unused(settings: BaseSettings) -> dict[str, str]:
    """Settings that are set and have no effect, each with an explanation of what applies instead."""
    effects = {name: NAMES[name].effect for name in _UNUSED if settings.get(name)}
    # Scrapy's own settings always have a default.
    return effects | {name: effect for name, effect in _UNUSED_OF_SCRAPY.items() if settings.getpriority(name)}
