"""Streams: Redis lists and streams, Kafka topics, AMQP exchanges. Their addresses, their messages, their sink.

A message is one JSON object, the one that a line of JSON lines has. Streams take nothing back and know no keys, so a
record comes at least once: a batch whose confirmation was lost, or whose worker died before it was acknowledged, is
sent again. Readers that need each record once keep one of a key: `crawl` and `url`, and `spider` and `number` of items.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record
from shoal.settings import masked
from shoal.sinks.columns import Row, encodable
from shoal.sinks.contract import Key, Stored
from shoal.sinks.files.jsonl import json_line
from shoal.sinks.retry import Connected, Connection

# A batch goes out in groups of at most this much, so that memory stays bounded whatever the size of pages.
GROUP_BYTES = 8_000_000
GROUP_MESSAGES = 1000

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
# Only these of librdkafka's properties: others load code or read files, and an output may come from the store.
KAFKA_PROPERTIES = (
    "security.protocol", "sasl.mechanism", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.key.password", "compression.type", "message.max.bytes", "client.id",
)  # fmt: skip
OPTIONS = {
    "redis": ("stream", "maxlen"),
    "rediss": ("stream", "maxlen", *_TLS),
    "kafka": KAFKA_PROPERTIES,
    "amqp": ("routing_key",),
    "amqps": ("routing_key", *_TLS),
}
_ADVICE = {
    "redis": "write {scheme}://USER:PASSWORD@HOST:6379/0/NAME",
    "kafka": "write kafka://BROKER:9092,BROKER:9092/TOPIC",
    "amqp": "write {scheme}://USER:PASSWORD@HOST/NAME, or HOST/VHOST/NAME",
}


class BrokerAddress(NamedTuple):
    """Where a stream is: a `name` in a `place`, which is the number of a database or a virtual host.

    `uri` is the full spelling, with its secret; `shown` is for people. `hosts` is one host, or several with commas.
    """

    uri: str
    shown: str
    user: str
    password: str
    hosts: str
    place: str
    name: str
    options: dict[str, str]


def stream_of(uri: str, *, what: str = "output", options: Sequence[str] | None = None) -> BrokerAddress:
    """SinkRefused in one sentence for what is no address. It shows no part of a URI that may be a secret."""
    shown = repr(masked(uri))
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    kind = scheme.removesuffix("s") if scheme != "redis" else scheme
    advice = _ADVICE[kind].format(scheme=scheme) + ", with %40, %2F, %23 and %3F for @, /, # and ? in a password"
    before, _, query = rest.partition("?")
    netloc, _, path = before.partition("/")
    login, _, hosts = netloc.rpartition("@")
    user, _, password = login.partition(":")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    *places, name = (unquote(part) for part in (path.split("/", 1) if kind == "redis" else path.split("/")))
    place = places[0] if places else {"redis": "", "kafka": "", "amqp": "/"}[kind]
    meant = {
        "redis": place.isdecimal() and bool(name),
        "kafka": not places and re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None,
        # Without a name it is the default exchange, which passes a message to the queue that its routing key names.
        "amqp": len(places) <= 1 and (bool(name) or "routing_key" in asked) and len(name.encode()) <= 255,
    }[kind]
    if not meant or not hosts or "@" in path or "#" in before or not _has_hosts(hosts, many=kind == "kafka"):
        raise SinkRefused(f"The {what} {shown} is no address that can be used; {advice}.")
    known = OPTIONS[scheme] if options is None else options
    if unknown := asked.keys() - set(known):
        raise SinkRefused(f"The {what} {shown} has the unknown option {min(unknown)!r}; known are {', '.join(known)}.")
    if "maxlen" in asked and not ("stream" in asked and asked["maxlen"].isdecimal() and int(asked["maxlen"])):
        raise SinkRefused(f"The {what} {shown} has a bad maxlen; write ?stream&maxlen=NUMBER.")
    full = f"{scheme}://{netloc}/{quote(path, safe='/%:')}" + (f"?{urlencode(asked)}" if asked else "")
    return BrokerAddress(full, masked(full), unquote(user), unquote(password), hosts, place, name, asked)


def _has_hosts(hosts: str, *, many: bool) -> bool:
    every = hosts.split(",")
    return (many or len(every) == 1) and all(
        re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", host) for host in every
    )


class StreamMessage(NamedTuple):
    """`key` is the record's in one text. `headers` are its parts."""

    key: str
    body: bytes
    headers: dict[str, str | int]

    @property
    def id(self) -> str:
        """The key where there is little room: 32 characters, the same whenever it is sent."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:32]


def message_of(record: Row) -> StreamMessage:
    try:
        line = json_line(record)
    except UnicodeEncodeError:
        record = encodable(record)
        line = json_line(record)
    headers: dict[str, str | int] = {"crawl": record.crawl, "url": record.url}
    if isinstance(record, Item):
        headers |= {"spider": record.spider, "number": record.number}
    return StreamMessage(" ".join(record.key), line.removesuffix(b"\n"), headers)


def groups(messages: Iterator[StreamMessage]) -> Iterator[list[StreamMessage]]:
    """Messages in groups of a bounded size, at least one each."""
    group: list[StreamMessage] = []
    size = 0
    for message in messages:
        if group and (size + len(message.body) > GROUP_BYTES or len(group) == GROUP_MESSAGES):
            yield group
            group, size = [], 0
        group.append(message)
        size += len(message.body)
    if group:
        yield group


class StreamSink(Connected[Connection]):
    """One worker's connection to one stream. A technology adds `_send`, which returns when all of it is confirmed."""

    def __init__(self, uri: str, *, worker: str, on_trouble: Callable[[str], None], spider: bool) -> None:
        self._address = stream_of(uri)
        super().__init__(self._address.shown, on_trouble)
        self._kept: type[Row] = Item if spider else Record

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        last = {record.key: record for record in records if isinstance(record, self._kept)}
        for group in groups(self._message(record) for record in last.values()):

            async def send(connection: Connection, group: list[StreamMessage] = group) -> None:
                await self._send(connection, group)

            await self._persist(send)

    async def settle(self, refused: Collection[Key]) -> None:
        """Nothing: what was sent cannot be taken back."""

    def _message(self, record: Row) -> StreamMessage:
        return message_of(record)

    @abstractmethod
    async def _send(self, connection: Connection, messages: list[StreamMessage]) -> None: ...
