"""Kafka as a source: a consumer group whose offsets are committed after the requests are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from shoal.brokers.address import BrokerAddress
from shoal.brokers.kafka import PolledProducer, configuration, fault_of
from shoal.listen.source import MOST, WAIT_SECONDS, ReceivedMessage, SourceUnavailable, dead_letter, names_of, trouble

T = TypeVar("T")

# The partitions are somebody else's now, who gets the messages again.
_MOVED = (
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._NO_OFFSET
)  # fmt: skip
# A bridge that died is missed after this; one that only sleeps has its messages handled twice, which is no harm.
_SESSION_MS = 10_000


class KafkaSource:
    """librdkafka is asked in a thread: its calls wait."""

    def __init__(self, address: BrokerAddress) -> None:
        self.shown = address.shown
        self._address = address
        self._topic, self._names = address.name, names_of(address)
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
                "auto.offset.reset": "earliest", "session.timeout.ms": _SESSION_MS, "error_cb": self._note,
            }
        )  # fmt: skip
        self._consumer.subscribe([self._topic])

    def _note(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            self._down = error

    async def take(self) -> list[ReceivedMessage]:
        found = await self._run(self._consume)
        if self._down is not None and not found:
            raise trouble(self._address, fault_of(self._down))
        self._down = None
        return [_message(one) for one in found]

    def _consume(self) -> list[KafkaMessage]:
        if self._consumer is None:
            raise SourceUnavailable("was closed here")
        found: list[KafkaMessage] = []
        for one in self._consumer.consume(MOST, WAIT_SECONDS):
            error = one.error()
            if error is None:
                found.append(one)
            elif error.code() != KafkaError._PARTITION_EOF and not found:
                raise KafkaException(error)
        return found

    async def bury(self, message: ReceivedMessage, reason: str) -> None:
        await self._send(self._names.dead, message, dead_letter(message, reason))

    async def answer(self, message: ReceivedMessage, place: str, answer: bytes) -> None:
        await self._send(place or self._names.reply, message, answer)

    async def _send(self, topic: str, message: ReceivedMessage, body: bytes) -> None:
        producer = self._producer
        if producer is None:
            raise SourceUnavailable("was closed here")
        await self._run(lambda: producer.send(topic, [(message.id, body)]))

    async def done(self, messages: Sequence[ReceivedMessage]) -> None:
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.token
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        offsets = [TopicPartition(self._topic, partition, end) for partition, end in ends.items()]

        def commit() -> None:
            if self._consumer is None:
                raise SourceUnavailable("was closed here")
            try:
                for one in self._consumer.commit(offsets=offsets, asynchronous=False) or ():
                    if one.error is not None and one.error.code() not in _MOVED:
                        raise KafkaException(one.error)
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
            raise SourceUnavailable("was closed here")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except KafkaException as error:
            raise trouble(self._address, fault_of(error.args[0])) from error


def _message(one: KafkaMessage) -> ReceivedMessage:
    partition, offset = one.partition(), one.offset()
    value = one.value()
    body = value if isinstance(value, bytes) else (value or "").encode()
    return ReceivedMessage(body, f"{one.topic()}-{partition}-{offset}", (partition, offset))
