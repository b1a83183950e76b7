"""Redis lists and streams and Kafka topics, read back from their start to their current end. Nothing is removed.

A record that was sent twice is read twice. A function that ends in `_bodies` yields the bodies of messages in batches.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from shoal.brokers.connection import CONNECT_SECONDS
from shoal.model.record import Item, Record
from shoal.sinks.columns import Row
from shoal.sinks.driver import lazy_import
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.readers import line_decoder
from shoal.sinks.reader import Cursor, ReadRequest, record_of
from shoal.sinks.streams.stream import StreamSink

if TYPE_CHECKING:
    import confluent_kafka

    from shoal.brokers import kafka
    from shoal.sinks.streams.kafka import KafkaSink
    from shoal.sinks.streams.redis import RedisSink
else:
    confluent_kafka, kafka = lazy_import("confluent_kafka"), lazy_import("shoal.brokers.kafka")

# The messages in memory at a time. Their size is known after the first ones.
_BYTES, _FIRST, _MOST = 4_000_000, 20, 500
_WAIT_SECONDS = 1.0


async def read(
    sink: StreamSink[Any], bodies: AsyncGenerator[list[bytes], None]
) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
    """All records of a stream, pages or items of any crawl, without cursors."""
    decode, description = line_decoder(ReadRequest(None, items=False, columns=())), f"A message of {sink.shown}"
    async with contextlib.aclosing(sink.translated(bodies)) as batches:
        async for batch in batches:
            rows = [decode(body, description) for body in batch]
            yield [((), record_of(values, Item if "data" in values else Record, description)) for values in rows]


def _next_count(bodies: list[bytes]) -> int:
    """How many messages of this size to read next."""
    return max(1, min(_MOST, _BYTES * len(bodies) // max(sum(map(len, bodies)), 1)))


async def list_bodies(sink: RedisSink) -> AsyncGenerator[list[bytes], None]:
    connection = await sink.connect()
    try:
        name, at, count = sink.address.name, 0, _FIRST
        end, last = await connection.ask("LLEN", name), b""
        while at < end:
            # Starts with the last one read: it has moved if another program removes entries.
            bodies = await connection.ask("LRANGE", name, max(at - 1, 0), min(at + count, end) - 1)
            if at and bodies[:1] != [last]:
                raise sink.refused("loses entries to another program, so that records would be missing; stop it first")
            bodies = bodies[1:] if at else bodies
            if not bodies:
                raise sink.refused("has become shorter, because another program removes entries; stop it first")
            at, last, count = at + len(bodies), bodies[-1], _next_count(bodies)
            yield bodies
    finally:
        sink.abandon(connection)


async def stream_bodies(sink: RedisSink) -> AsyncGenerator[list[bytes], None]:
    connection = await sink.connect()
    try:
        name, start, count = sink.address.name, b"-", _FIRST
        newest = await connection.ask("XREVRANGE", name, "+", "-", "COUNT", 1)
        end = newest[0][0] if newest else b""
        while end and (entries := await connection.ask("XRANGE", name, start, end, "COUNT", count)):
            bodies = [dict(zip(fields[::2], fields[1::2], strict=True)).get(b"json", b"") for _, fields in entries]
            start, count = b"(" + entries[-1][0], _next_count(bodies)
            yield bodies
    finally:
        sink.abandon(connection)


async def topic_bodies(sink: KafkaSink) -> AsyncGenerator[list[bytes], None]:
    """By a consumer with a group of its own: it assigns its partitions itself, and commits nothing."""
    topic, thread = sink.address.name, SinkThread("kafka-reader")
    consumer: Any = None

    def assign() -> dict[int, int]:
        """The end of each partition that has messages."""
        nonlocal consumer
        consumer = confluent_kafka.Consumer(
            {
                **kafka.configuration(sink.address), "group.id": f"shoal-export-{uuid.uuid4()}",
                "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
                "queued.max.messages.kbytes": 16_384, "allow.auto.create.topics": False,
            }
        )  # fmt: skip
        metadata = consumer.list_topics(topic, timeout=CONNECT_SECONDS).topics[topic]
        if metadata.error is not None:
            raise confluent_kafka.KafkaException(metadata.error)
        ends, partitions = {}, []
        for number in metadata.partitions:
            partition = confluent_kafka.TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(partition, timeout=CONNECT_SECONDS)
            if low < high:
                ends[number] = high
                partitions.append(confluent_kafka.TopicPartition(topic, number, low))
        consumer.assign(partitions)
        return ends

    try:
        ends = await thread.run(assign)
        while ends:
            bodies = []
            for message in await thread.run(lambda: consumer.consume(50, _WAIT_SECONDS)):
                error, number = message.error(), message.partition()
                if error is not None:
                    # The last offsets before the end may hold no message, e.g. the markers of transactions.
                    if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                        raise confluent_kafka.KafkaException(error)
                    ends.pop(number, None)
                elif number in ends:
                    if message.offset() < ends[number] and message.value() is not None:
                        bodies.append(message.value())
                    if message.offset() >= ends[number] - 1:
                        del ends[number]
            if bodies:
                yield bodies
    finally:
        await thread.end(lambda: consumer and consumer.close())
