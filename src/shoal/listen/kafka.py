"""A Kafka topic as a source: a consumer group whose offsets are committed after the requests are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from shoal.brokers.address import BrokerAddress
from shoal.brokers.kafka import PolledProducer, configuration, fault_of
from shoal.errors import ShoalError
from shoal.listen.source import (
    BATCH_SIZE,
    WAIT_SECONDS,
    ReceivedMessage,
    SourceUnavailable,
    queue_names,
    reply_prefixes,
    to_error,
    to_refusal,
)

T = TypeVar("T")

# The partitions were assigned to another consumer, which receives the messages again.
_MOVED = (
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._NO_OFFSET
)  # fmt: skip
# The broker takes a bridge for dead after this time. If it was only slow, its messages are handled twice, which is
# harmless.
_SESSION_MS = 10_000


class KafkaSource:
    """Calls librdkafka in a thread, because its calls block."""

    def __init__(self, address: BrokerAddress) -> None:
        self.shown = address.shown
        self._address = address
        self._topic, self._names = address.name, queue_names(address)
        self.reply_prefixes = reply_prefixes(address)
        self._pool: ThreadPoolExecutor | None = None
        self._consumer: Consumer | None = None
        self._producer: PolledProducer | None = None
        self._down: KafkaError | None = None

    async def open(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kafka-source")
        self._down = None
        await self._run(self._subscribe)

    def _subscribe(self) -> None:
        settings = configuration(self._address)
        self._producer = PolledProducer({**settings, "acks": "all", "enable.idempotence": True})
        self._producer.check_topic(self._topic)
        self._consumer = Consumer(
            {
                **settings, "group.id": self._address.options.get("group") or "shoal", "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "session.timeout.ms": _SESSION_MS, "error_cb": self._on_error,
            }
        )  # fmt: skip
        self._consumer.subscribe([self._topic])

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            self._down = error

    async def receive(self) -> list[ReceivedMessage]:
        messages = await self._run(self._consume)
        if self._down is not None and not messages:
            raise to_error(self._address, fault_of(self._down))
        self._down = None
        return [_message(message) for message in messages]

    def _consume(self) -> list[KafkaMessage]:
        if self._consumer is None:
            raise SourceUnavailable("is closed")
        messages: list[KafkaMessage] = []
        for message in self._consumer.consume(BATCH_SIZE, WAIT_SECONDS):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() != KafkaError._PARTITION_EOF and not messages:
                raise KafkaException(error)
        return messages

    async def reject(self, message: ReceivedMessage, letter: bytes) -> None:
        await self._send(self._names.dead_letters, message, letter)

    async def reply(self, message: ReceivedMessage, queue: str, body: bytes) -> None:
        await self._send(queue or self._names.replies, message, body)

    async def _send(self, topic: str, message: ReceivedMessage, body: bytes) -> None:
        producer = self._producer
        if producer is None:
            raise SourceUnavailable("is closed")

        def send() -> None:
            # A topic that does not exist is refused at once here, and by a time limit only in `send`.
            producer.check_topic(topic)
            producer.send(topic, [(message.id, body)])

        try:
            await self._run(send)
        except ShoalError as error:
            raise to_refusal(error) from error

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.token
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        offsets = [TopicPartition(self._topic, partition, end) for partition, end in ends.items()]

        def commit() -> None:
            if self._consumer is None:
                raise SourceUnavailable("is closed")
            try:
                for partition in self._consumer.commit(offsets=offsets, asynchronous=False) or ():
                    if partition.error is not None and partition.error.code() not in _MOVED:
                        raise KafkaException(partition.error)
            except KafkaException as error:
                if error.args[0].code() not in _MOVED:
                    raise

        await self._run(commit)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        if pool is not None:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                await asyncio.get_running_loop().run_in_executor(pool, consumer.close)
            pool.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            raise SourceUnavailable("is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except KafkaException as error:
            raise to_error(self._address, fault_of(error.args[0])) from error


def _message(message: KafkaMessage) -> ReceivedMessage:
    partition, offset = message.partition(), message.offset()
    value = message.value()
    body = value if isinstance(value, bytes) else (value or "").encode()
    return ReceivedMessage(body, f"{message.topic()}-{partition}-{offset}", (partition, offset))
