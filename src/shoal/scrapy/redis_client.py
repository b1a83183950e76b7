"""A redis-py client of the store for a project's own code, as scrapy-redis provides it.

Shoal itself does not use it. redis-py is not a dependency of Shoal: without it, creating a client raises SettingsError.
"""

from __future__ import annotations

from typing import Any

from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from shoal.errors import SettingsError
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.session import settings_of
from shoal.settings import masked

PARAMS = {"socket_timeout": 30, "socket_connect_timeout": 30, "retry_on_timeout": True, "encoding": "utf-8"}
# Keys of REDIS_PARAMS that are part of the URL.
_IN_URL = frozenset(("url", "host", "port", "db", "username", "password", "unix_socket_path", "ssl"))
_PARAMETERS = {
    "REDIS_URL": "url", "REDIS_HOST": "host", "REDIS_PORT": "port", "REDIS_DB": "db", "REDIS_ENCODING": "encoding",
    "REDIS_DECODE_RESPONSES": "decode_responses",
}  # fmt: skip
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}


def server_of(crawler: Crawler) -> Any:
    """A client of the crawler's store, for a spider that reads its start URLs there."""
    # Not the crawler's session, which needs an existing spider: this may run while the spider is created.
    url = settings_of(crawler).store.url or scrapy_redis_settings.store_url(crawler.settings, reads_start_urls=True)
    return _client(crawler.settings, url or "")


def get_redis_from_settings(settings: BaseSettings) -> Any:
    """A client of the server in a project's settings, with scrapy-redis' precedence."""
    if url := settings.get("SHOAL_STORE_URL"):
        return _client(settings, url)
    params = {**PARAMS, **settings.getdict("REDIS_PARAMS")}
    params |= {name: settings.get(setting) for setting, name in _PARAMETERS.items() if settings.get(setting)}
    return get_redis(**params)


def get_redis(**params: Any) -> Any:
    """A client of the class `redis_cls` (default redis.Redis), at `url` if given, with these parameters."""
    kind = params.pop("redis_cls", None) or redis_class()
    kind = load_object(kind) if isinstance(kind, str) else kind
    url = params.pop("url", None)
    return kind.from_url(url, **params) if url else kind(**params)


def redis_class() -> Any:
    try:
        # By name, as a project names its own class.
        return load_object("redis.Redis")
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise SettingsError(
            "A spider's `server` and scrapy_redis.connection need the package redis, which is not installed; "
            "run: pip install redis."
        ) from None


def _client(settings: BaseSettings, url: str) -> Any:
    scheme, separator, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise SettingsError(
            f"A spider's `server` is a client of a single server, but the store is {masked(url) or 'embedded'}: create "
            "a client yourself, e.g. redis.cluster.RedisCluster."
        )
    secure = _SCHEMES[scheme] == "rediss"
    parameters = {
        **PARAMS,
        "encoding": str(scrapy_redis_settings.value(settings, "REDIS_ENCODING")),
        **settings.getdict("REDIS_PARAMS"),
    }
    if scrapy_redis_settings.value(settings, "REDIS_DECODE_RESPONSES"):
        parameters["decode_responses"] = settings.getbool("REDIS_DECODE_RESPONSES")
    kept = {
        name: value for name, value in parameters.items()
        if name not in _IN_URL and (secure or not name.startswith("ssl_"))
    }  # fmt: skip
    return get_redis(url=f"{_SCHEMES[scheme]}{separator}{rest}", **kept)
