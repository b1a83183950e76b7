"""scrapy-redis' settings: their names, their defaults, and what each does here. A test compares them with its source.

Owns how a Scrapy project's settings become Shoal's. Nothing else in this package reads a setting of scrapy-redis' name.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple
from urllib.parse import quote

from scrapy import Spider
from scrapy.core import downloader
from scrapy.settings import BaseSettings

from shoal.errors import InvalidLimit, SettingsError
from shoal.model.crawl_spec import Limits
from shoal.model.validation import number

log = logging.getLogger("shoal.scrapy")


class SettingName(NamedTuple):
    """`default` is scrapy-redis' own; `here` says what became of it."""

    default: Any
    here: str


# In the order of scrapy-redis' documentation. docs/guides/scrapy.md has the same table.
NAMES: dict[str, SettingName] = {
    "REDIS_URL": SettingName(None, "the store"),
    "REDIS_HOST": SettingName(None, "the store's host; REDIS_URL wins"),
    "REDIS_PORT": SettingName(None, "its port"),
    "REDIS_DB": SettingName(None, "its database"),
    "REDIS_PARAMS": SettingName(
        None, "host, port, db, username, password, ssl..., unix_socket_path and url; the rest is unused"
    ),
    "REDIS_ENCODING": SettingName("utf-8", "of start URLs, where redis_encoding is not set"),
    "REDIS_DECODE_RESPONSES": SettingName(None, "for spider.server alone: start URLs are always bytes"),
    "SCHEDULER_PERSIST": SettingName(False, "a finished crawl stays open, with what it has seen"),
    "SCHEDULER_FLUSH_ON_START": SettingName(False, "begin anew, unless another process is at the crawl"),
    "SCHEDULER_IDLE_BEFORE_CLOSE": SettingName(0, "seconds to wait for more after the crawl is finished"),
    "SCHEDULER_QUEUE_KEY": SettingName("%(spider)s:requests", "names the crawl"),
    "SCHEDULER_QUEUE_CLASS": SettingName("scrapy_redis.queue.PriorityQueue", "Priority, Fifo or Lifo; no other class"),
    "SCHEDULER_DUPEFILTER_KEY": SettingName("%(spider)s:dupefilter", "unused: what was seen belongs to the crawl"),
    "DUPEFILTER_CLASS": SettingName(
        "scrapy_redis.dupefilter.RFPDupeFilter", "another class than Scrapy's and ours is asked"
    ),
    "DUPEFILTER_DEBUG": SettingName(None, "log every filtered request"),
    "SCHEDULER_SERIALIZER": SettingName(None, "unused: requests are msgpack"),
    "REDIS_START_URLS_KEY": SettingName("%(name)s:start_urls", "the key of start URLs, where redis_key is not set"),
    "REDIS_START_URLS_AS_SET": SettingName(False, "it is a set"),
    "REDIS_START_URLS_AS_ZSET": SettingName(False, "it is a sorted set, highest score first"),
    "REDIS_START_URLS_BATCH_SIZE": SettingName(None, "start URLs taken at once; else CONCURRENT_REQUESTS"),
    "CONCURRENT_REQUESTS": SettingName(16, "also start URLs taken at once, where redis_batch_size is not set"),
    "MAX_IDLE_TIME_BEFORE_CLOSE": SettingName(
        0, "seconds without a start URL after which a RedisSpider closes; 0 = never"
    ),
    "REDIS_ITEMS_KEY": SettingName("%(spider)s:items", "the list RedisPipeline appends to"),
    "REDIS_ITEMS_SERIALIZER": SettingName(None, "path of the function that makes text or bytes of an item"),
    "STATS_KEY": SettingName("%(spider)s:stats", "the hash RedisStatsCollector writes to"),
}

# How soon a start URL is noticed.
SLOW_TO_NOTICE_SECONDS = 0.08
_UNUSED = ("SCHEDULER_DUPEFILTER_KEY", "SCHEDULER_SERIALIZER")
_ORDERS = {
    "FifoQueue": ("fifo", True), "SpiderQueue": ("fifo", True),
    "LifoQueue": ("lifo", True), "SpiderStack": ("lifo", True),
    "PriorityQueue": ("fifo", False), "SpiderPriorityQueue": ("fifo", False),
}  # fmt: skip
# Of the filters that a project may name, those whose work the frontier does.
_FILTERS = ("scrapy.dupefilters.RFPDupeFilter", "scrapy_redis.dupefilter.RFPDupeFilter")
_MOST_PLACES = 32
# The downloader of older Scrapys asks the spider for download_delay and max_concurrent_requests; newer ones put them
# into the settings.
_asks_spider = getattr(downloader, "_get_concurrency_delay", None)


def value(settings: BaseSettings, name: str) -> Any:
    """The setting, or scrapy-redis' default."""
    found = settings.get(name)
    return NAMES[name].default if found is None or found == "" else found


def store_url(settings: BaseSettings, *, reads_start_urls: bool) -> str | None:
    """The store the project names; None where it names none.

    scrapy-redis' precedence: REDIS_URL and the other settings go before REDIS_PARAMS, a URL before a host. A spider
    that reads its start URLs from Redis means localhost, as scrapy-redis does, when nothing is named.
    """
    params = {name: one for name, one in settings.getdict("REDIS_PARAMS").items() if one not in (None, "")}
    for setting, name in (("REDIS_URL", "url"), ("REDIS_HOST", "host"), ("REDIS_PORT", "port"), ("REDIS_DB", "db")):
        if one := settings.get(setting):
            params[name] = one
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
    given = [f"{name}={quote(str(params[name]))}" for name in _TLS if scheme == "rediss" and name in params]
    return url + ("?" + "&".join(given) if given else "")


_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


def _login(params: dict[str, Any]) -> str:
    user, password = params.get("username", ""), params.get("password", "")
    if not user and not password:
        return ""
    return f"{quote(str(user), safe='')}:{quote(str(password), safe='')}@"


def _with_credentials(url: str, params: dict[str, Any]) -> str:
    scheme, mark, rest = url.partition("://")
    login = _login(params)
    if login and "@" not in rest.partition("/")[0]:
        url = f"{scheme}{mark}{login}{rest}"
    # redis-py takes these among a URL's parameters; they are about its connections, which ours are not.
    head, mark, query = url.partition("?")
    kept = [pair for pair in query.split("&") if pair.partition("=")[0] in (*_TLS, "db", "username", "password")]
    return head + ("?" + "&".join(kept) if mark and kept else "")


def crawl_name(settings: BaseSettings, spider_name: str) -> str | None:
    """The name SCHEDULER_QUEUE_KEY gives; None where it is not set."""
    key = settings.get("SCHEDULER_QUEUE_KEY")
    return str(key) % {"spider": spider_name, "name": spider_name} if key else None


class Order(NamedTuple):
    order: str
    flat: bool


def order(settings: BaseSettings) -> Order:
    """In what order a host's requests are made; `flat` means that priorities do not count."""
    named = value(settings, "SCHEDULER_QUEUE_CLASS")
    name = named if isinstance(named, str) else named.__name__
    found = _ORDERS.get(name.rpartition(".")[2])
    if found is None:
        raise SettingsError(
            f"SCHEDULER_QUEUE_CLASS is {name!r}: the frontier has the orders of {', '.join(sorted(_ORDERS))} only."
        )
    return Order(*found)


def limits(settings: BaseSettings, spider: Spider, *, tag: str) -> Limits:
    """What the whole fleet keeps to. A delay means one request at a time: more places would each keep their own."""
    delay, places = _pace(settings, spider)
    if places > _MOST_PLACES:
        log.warning("CONCURRENT_REQUESTS_PER_DOMAIN is %d: at most %d are used.", places, _MOST_PLACES)
    return Limits(delay_seconds=delay, places=_places(settings, delay, places), order=order(settings).order, spider=tag)


class Slot(NamedTuple):
    delay_seconds: float
    places: int


def slots(settings: BaseSettings, spider: Spider) -> dict[str, Slot]:
    """Hosts with a delay and places of their own, by their names without a port."""
    found = {}
    usual_delay, usual_places = _pace(settings, spider)
    for host, entry in settings.getdict("DOWNLOAD_SLOTS").items():
        try:
            delay = number("delay", float(entry.get("delay", usual_delay)), 0, 86400)
            places = int(entry.get("concurrency", usual_places))
        except (AttributeError, TypeError, ValueError, InvalidLimit):
            raise SettingsError(
                f"DOWNLOAD_SLOTS has {entry!r:.80} for {host}: it must be a dict with a delay in seconds (0 to 86400) "
                "and a concurrency."
            ) from None
        found[str(host)] = Slot(delay, _places(settings, delay, places))
    return found


def _pace(settings: BaseSettings, spider: Spider) -> tuple[float, int]:
    delay, places = settings.getfloat("DOWNLOAD_DELAY"), settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
    if _asks_spider is not None:
        places, delay = _asks_spider(places, spider, settings)
    return delay, places


def _places(settings: BaseSettings, delay: float, places: int) -> int:
    if delay > 0 or settings.getbool("AUTOTHROTTLE_ENABLED"):
        return 1
    return max(1, min(places or _MOST_PLACES, _MOST_PLACES))


def filtered_by_frontier(settings: BaseSettings) -> bool:
    """Whether the frontier's own dedup is meant, or a class of the project's own is to be asked."""
    named = settings.get("DUPEFILTER_CLASS")
    return named is None or (isinstance(named, str) and named in _FILTERS)


def unused(settings: BaseSettings) -> list[str]:
    """Settings that are there and do nothing."""
    return [name for name in _UNUSED if settings.get(name)]
