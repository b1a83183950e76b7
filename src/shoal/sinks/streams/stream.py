"""Streams: Redis lists and streams, Kafka topics, AMQP exchanges. Their addresses, their messages, their sink.

A message is one JSON object, the one that a line of JSON lines has. Streams take nothing back and know no keys, so a
record comes at least once: a batch whose confirmation was lost, or whose worker died before it was acknowledged, is
sent again. Readers that need each record once keep one of a key: `crawl` and `url`, and `spider` and `number` of items.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from shoal.brokers.address import parse_broker_uri
from shoal.model.record import Item, Record
from shoal.sinks.columns import Row, encodable
from shoal.sinks.contract import Key, Stored
from shoal.sinks.files.jsonl import json_line
from shoal.sinks.retry import Connected, Connection

# A batch goes out in groups of at most this much, so that memory stays bounded whatever the size of pages.
GROUP_BYTES = 8_000_000
GROUP_MESSAGES = 1000


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
        self._address = parse_broker_uri(uri)
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
