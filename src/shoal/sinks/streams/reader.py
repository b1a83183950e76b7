"""Lists and streams of Redis, topics of Kafka, read from their beginning to where they end now. Nothing is taken out.

What was sent twice is read twice: whoever wants each record once keeps one of a key. How to connect, and what errors
mean, is the sinks' own.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from shoal.brokers.connection import CONNECT_SECONDS
from shoal.sinks.columns import Row
from shoal.sinks.executor import SinkThread
from shoal.sinks.reader import ReadRequest, line_decoder, record_of
from shoal.sinks.sql.server_reader import answered

# Of messages in memory at once; their sizes are known when the first of them are here.
_BYTES, _FIRST, _MOST = 4_000_000, 20, 500
_WAIT_SECONDS = 1.0


async def read(scheme: str, uri: str) -> AsyncGenerator[list[Row], None]:
    """All records of a stream, pages or items, those of any crawl."""
    if scheme == "kafka":
        sink: Any = importlib.import_module("shoal.sinks.streams.kafka").KafkaSink
    else:
        sink = importlib.import_module("shoal.sinks.streams.redis").RedisSink
    sink = sink(uri, worker="reader", on_trouble=lambda text: None, spider=False)
    bodies = _topic if scheme == "kafka" else _stream if "stream" in sink._address.options else _list
    values_of, where = line_decoder(ReadRequest(None, items=False, columns=())), f"A message of {sink._address.shown}"
    async with aclosing(answered(sink, bodies(sink))) as batches:
        async for batch in batches:
            told = [values_of(body, where) for body in batch]
            yield [record_of(one, ReadRequest(None, items="data" in one, columns=()).type, where) for one in told]


def _more(bodies: list[bytes]) -> int:
    """How many of this size to ask for next."""
    return max(1, min(_MOST, _BYTES * len(bodies) // max(sum(map(len, bodies)), 1)))


async def _list(sink: Any) -> AsyncIterator[list[bytes]]:
    connection = await sink._connect()
    try:
        name, at, count = sink._address.name, 0, _FIRST
        end, last = await connection.ask("LLEN", name), b""
        while at < end:
            # With the last one again: it is somewhere else when others take from the list.
            found = await connection.ask("LRANGE", name, max(at - 1, 0), min(at + count, end) - 1)
            if at and found[:1] != [last]:
                raise sink._refused("is taken from meanwhile, so that records would be missing; stop who does that")
            found = found[1:] if at else found
            if not found:
                raise sink._refused("has become shorter meanwhile; stop who takes from it")
            at, last, count = at + len(found), found[-1], _more(found)
            yield found
    finally:
        sink._abandon(connection)


async def _stream(sink: Any) -> AsyncIterator[list[bytes]]:
    connection = await sink._connect()
    try:
        name, behind, count = sink._address.name, b"-", _FIRST
        newest = await connection.ask("XREVRANGE", name, "+", "-", "COUNT", 1)
        end = newest[0][0] if newest else b""
        while end and (found := await connection.ask("XRANGE", name, behind, end, "COUNT", count)):
            bodies = [dict(zip(fields[::2], fields[1::2], strict=True)).get(b"json", b"") for _, fields in found]
            behind, count = b"(" + found[-1][0], _more(bodies)
            yield bodies
    finally:
        sink._abandon(connection)


async def _topic(sink: Any) -> AsyncIterator[list[bytes]]:
    """By a consumer of no group: it has its partitions assigned, and commits nothing."""
    kafka: Any = importlib.import_module("confluent_kafka")
    configuration: Any = importlib.import_module("shoal.brokers.kafka").configuration
    topic, thread = sink._address.name, SinkThread("kafka-reader")
    consumer: Any = None

    def begin() -> dict[int, int]:
        """Where each partition ends that has something."""
        nonlocal consumer
        consumer = kafka.Consumer(
            {
                **configuration(sink._address), "group.id": f"shoal-export-{uuid.uuid4()}",
                "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
                "queued.max.messages.kbytes": 16_384, "allow.auto.create.topics": False,
            }
        )  # fmt: skip
        found = consumer.list_topics(topic, timeout=CONNECT_SECONDS).topics[topic]
        if found.error is not None:
            raise kafka.KafkaException(found.error)
        ends, parts = {}, []
        for number in found.partitions:
            low, high = consumer.get_watermark_offsets(kafka.TopicPartition(topic, number), timeout=CONNECT_SECONDS)
            if low < high:
                ends[number] = high
                parts.append(kafka.TopicPartition(topic, number, low))
        consumer.assign(parts)
        return ends

    try:
        ends = await thread.run(begin)
        while ends:
            bodies = []
            for one in await thread.run(lambda: consumer.consume(50, _WAIT_SECONDS)):
                error, number = one.error(), one.partition()
                if error is not None:
                    # The last messages before an end may be none for readers, as those of transactions.
                    if error.code() != kafka.KafkaError._PARTITION_EOF:
                        raise kafka.KafkaException(error)
                    ends.pop(number, None)
                elif number in ends:
                    if one.offset() < ends[number] and one.value() is not None:
                        bodies.append(one.value())
                    if one.offset() >= ends[number] - 1:
                        del ends[number]
            if bodies:
                yield bodies
    finally:
        await thread.end(lambda: consumer and consumer.close())
