"""A client of the store for the code of projects, which expects one of the package redis, as scrapy-redis gives it.

Shoal itself never uses it. The package is not one of Shoal's: where it is absent, whoever asks for a client is told.
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
# Of REDIS_PARAMS, what the URL says.
_IN_URL = frozenset(("url", "host", "port", "db", "username", "password", "unix_socket_path", "ssl"))
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}


def server_of(crawler: Crawler) -> Any:
    """A client of the store that this crawler is on, whose spider reads start URLs there."""
    # Not the crawler's session: that is for a spider that is made already, and this may be while it is made.
    url = settings_of(crawler).store.url or scrapy_redis_settings.store_url(crawler.settings, reads_start_urls=True)
    return _client(crawler.settings, url or "")


def get_redis_from_settings(settings: BaseSettings) -> Any:
    """A client of the server that a project's settings name."""
    return _client(
        settings,
        settings.get("SHOAL_STORE_URL") or scrapy_redis_settings.store_url(settings, reads_start_urls=True) or "",
    )


def get_redis(**params: Any) -> Any:
    """A client with these parameters of redis.Redis, or of `redis_cls`; `url` says where."""
    kind = params.pop("redis_cls", None) or redis_class()
    kind = load_object(kind) if isinstance(kind, str) else kind
    url = params.pop("url", None)
    return kind.from_url(url, **params) if url else kind(**params)


def redis_class() -> Any:
    try:
        # By its name, as a project gives a class of its own.
        return load_object("redis.Redis")
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise SettingsError(
            "A spider's `server` and scrapy_redis.connection are clients of the package redis, which is not installed; "
            "run: pip install redis."
        ) from None


def _client(settings: BaseSettings, url: str) -> Any:
    scheme, mark, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise SettingsError(
            f"A spider's `server` is a client of one server, and the store is {masked(url) or 'embedded'}: make a "
            "client of the package redis yourself, such as redis.cluster.RedisCluster."
        )
    secure = _SCHEMES[scheme] == "rediss"
    given = {
        **PARAMS,
        "encoding": str(scrapy_redis_settings.value(settings, "REDIS_ENCODING")),
        **settings.getdict("REDIS_PARAMS"),
    }
    if scrapy_redis_settings.value(settings, "REDIS_DECODE_RESPONSES"):
        given["decode_responses"] = settings.getbool("REDIS_DECODE_RESPONSES")
    kept = {
        name: value for name, value in given.items()
        if name not in _IN_URL and (secure or not name.startswith("ssl_"))
    }  # fmt: skip
    return get_redis(url=f"{_SCHEMES[scheme]}{mark}{rest}", **kept)
