"""Bridges: crawl requests from a Redis list or stream, a Kafka topic or an AMQP queue.

Owns the table of technologies. A technology's module is imported only when a source of that kind is opened.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import cast

from shoal.brokers.address import KAFKA_PROPERTIES, TLS_OPTIONS, parse_broker_uri
from shoal.errors import InvalidInput, SinkRefused
from shoal.listen.bridge import Bridge
from shoal.listen.source import Source
from shoal.settings import masked

__all__ = ["Bridge", "Source", "open_source"]

_QUEUES = ("dead", "reply", "reply_prefix")
# Scheme: options, module, class, the package it needs and the extra of Shoal that installs it.
_KINDS: dict[str, tuple[tuple[str, ...], str, str, str, str]] = {
    "redis": (("stream", "group", *_QUEUES), "redis", "RedisSource", "", ""),
    "rediss": (("stream", "group", *_QUEUES, *TLS_OPTIONS), "redis", "RedisSource", "", ""),
    "kafka": (("group", *_QUEUES, *KAFKA_PROPERTIES), "kafka", "KafkaSource", "confluent_kafka", "kafka"),
    "amqp": (_QUEUES, "amqp", "AmqpSource", "aio_pika", "amqp"),
    "amqps": ((*_QUEUES, *TLS_OPTIONS), "amqp", "AmqpSource", "aio_pika", "amqp"),
}


def open_source(uri: str) -> Source:
    """The source of a URI; call its `open`. InvalidInput for an invalid URI."""
    scheme, separator, _ = uri.partition("://")
    kind = _KINDS.get(scheme.lower()) if separator and uri.isprintable() else None
    if kind is None:
        raise InvalidInput(
            f"Unsupported source {masked(uri)!r}; use redis://HOST:6379/0/NAME, kafka://BROKER:9092/TOPIC, "
            "amqp://HOST/QUEUE, or a name in [sources] of shoal.toml."
        )
    options, module, name, driver, extra = kind
    try:
        address = parse_broker_uri(uri, what="source", options=options)
    except SinkRefused as error:
        raise InvalidInput(str(error)) from None
    if driver and importlib.util.find_spec(driver) is None:
        raise InvalidInput(
            f"The source {address.shown} needs the package {driver}, which is not installed; "
            f"run: pip install 'shoal[{extra}]'."
        )
    # `stream` or `group` selects a stream instead of a list.
    if module == "redis" and {"stream", "group"} & address.options.keys():
        name = "RedisStreamSource"
    return cast(Source, getattr(importlib.import_module(f"shoal.listen.{module}"), name)(address))
