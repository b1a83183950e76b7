"""Streams: Redis lists and streams, Kafka topics, AMQP exchanges. Their messages, their sink, their technology.

A message is one JSON object, the same as a line of JSON lines. Messages cannot be removed and have no unique keys, so a
record is sent at least once: a batch whose confirmation was lost, or whose worker died before it was acknowledged, is
sent again. A consumer that needs each record once keeps one record per key: `crawl` and `url`, for items also `spider`
and `number`.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from shoal.brokers.address import parse_broker_uri
from shoal.model.record import Item, Record, RecordKey
from shoal.sinks.columns import Row, encodable, is_confirmation
from shoal.sinks.contract import Location, OnTrouble, Stored, Technology
from shoal.sinks.files.jsonl import json_line
from shoal.sinks.retry import Connected, Connection

# A batch is sent in groups of at most this size, so that memory stays bounded.
GROUP_BYTES = 8_000_000
GROUP_MESSAGES = 1000


class StreamMessage(NamedTuple):
    """`key` is the record's key as one text, `headers` are its parts."""

    key: str
    body: bytes
    headers: dict[str, str | int]

    @property
    def id(self) -> str:
        """A hash of the key, 32 characters, for brokers with short message ids."""
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
    """Messages in groups of a bounded size, at least one message each."""
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
    """One worker's connection to one stream. A technology adds `_send`, which returns when all are confirmed."""

    def __init__(self, uri: str, *, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        self.address = parse_broker_uri(uri)
        super().__init__(self.address.shown, on_trouble)
        self._holds: type[Row] = Item if spider else Record

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        last = {
            record.key: record for record in records if isinstance(record, self._holds) and not is_confirmation(record)
        }
        for group in groups(self._message(record) for record in last.values()):

            async def send(connection: Connection, group: list[StreamMessage] = group) -> None:
                await self._send(connection, group)

            await self._retry(send)

    async def commit(self, rejected: Collection[RecordKey]) -> None:
        """Do nothing: a message cannot be taken back."""

    async def hand_over(self) -> None:
        """Do nothing, as `commit`."""

    def _message(self, record: Row) -> StreamMessage:
        return message_of(record)

    @abstractmethod
    async def _send(self, connection: Connection, messages: list[StreamMessage]) -> None: ...


class StreamTechnology(Technology[str]):
    """A message broker."""

    location: ClassVar[Location] = Location.STREAM
    repeats: ClassVar[bool] = True
    sink_class: ClassVar[type[StreamSink[Any]]]

    def parse(self, uri: str) -> str:
        return parse_broker_uri(uri).uri

    def open(self, address: str, *, worker: str, on_trouble: OnTrouble, spider: bool) -> StreamSink[Any]:
        return self.sink_class(address, on_trouble=on_trouble, spider=spider)
