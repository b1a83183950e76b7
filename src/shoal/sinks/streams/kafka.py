"""Kafka: a message a record, keyed by the record's key, confirmed by all replicas that are in step.

librdkafka has threads of its own and calls back only when it is polled, so each connection has a thread that polls. The
producer is idempotent: what it repeats by itself is there once. A batch that this sink repeats may be there twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from shoal.model.record import Record
from shoal.sinks.columns import Row
from shoal.sinks.retry import CONNECT_SECONDS, QUIET_SECONDS, TransientError
from shoal.sinks.streams.stream import BrokerAddress, StreamMessage, StreamSink, message_of

T = TypeVar("T")

# librdkafka repeats by itself for so long; then people are told why nothing moves.
DELIVERY_SECONDS = 20.0
# When no broker at all can be reached, sooner.
_DOWN_SECONDS = 3.0
_ASK_SECONDS = 2.0
_POLL_SECONDS = 0.1
_MAX_MESSAGE_BYTES = 1_000_000
# What librdkafka and Kafka add to key and value.
_ENVELOPE_BYTES = 1000

_LOGIN = "check user and password, sasl.mechanism and security.protocol"
_REFUSALS = {
    KafkaError._AUTHENTICATION: _LOGIN,
    KafkaError.SASL_AUTHENTICATION_FAILED: _LOGIN,
    KafkaError._SSL: "check ssl.ca.location and that the port speaks TLS",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "let an administrator grant it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "let an administrator grant it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "let an administrator grant it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "make the topic first",
    KafkaError._UNKNOWN_TOPIC: "make the topic first",
    KafkaError.TOPIC_EXCEPTION: "choose another topic",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic",
    KafkaError._INVALID_ARG: "check its options",
}
# By urgency: what a broker said of us tells more than that nobody can be reached.
_TELLING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)


def configuration(address: BrokerAddress) -> dict[str, Any]:
    """What producers and consumers of this address have in common."""
    login: dict[str, Any] = {}
    if address.user:
        # A password does not go over the network in clear unless somebody says so.
        login = {
            "sasl.username": address.user, "sasl.password": address.password, "sasl.mechanism": "PLAIN",
            "security.protocol": "sasl_ssl",
        }  # fmt: skip
    given = {name: value for name, value in address.options.items() if "." in name}
    return {
        "bootstrap.servers": address.hosts, "client.id": "shoal", "log_level": 0, "log.connection.close": False,
        "socket.keepalive.enable": True, "reconnect.backoff.max.ms": 2000, **login, **given,
    }  # fmt: skip


def meaning(error: KafkaError) -> tuple[str, bool]:
    """What an error says after the name of what it is about, and whether time heals it."""
    # Text that librdkafka made of brokers' names and its own words; no password is ever in it.
    said = error.str().rstrip(".")
    advice = _REFUSALS.get(error.code())
    if advice is not None:
        return f"refuses: {said}; {advice}", False
    if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN):
        return f"cannot be reached ({said})", True
    if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
        return "does not answer", True
    return f"is not ready ({said})", True


class Wire:
    """A producer and the thread that polls it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._told: dict[int, KafkaError] = {}
        self._told_mono = 0.0
        self._left = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kafka")
        self._producer = Producer(
            {"message.timeout.ms": int(DELIVERY_SECONDS * 1000), **settings, "error_cb": self._note}
        )

    def _note(self, error: KafkaError) -> None:
        if not self._told:
            self._told_mono = time.monotonic()
        self._told[error.code()] = error

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def find(self, topic: str) -> None:
        """KafkaException when there is no such topic, or nobody answers."""
        deadline_mono = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                found = self._producer.list_topics(topic, timeout=_ASK_SECONDS).topics[topic]
                break
            except KafkaException:
                self._producer.poll(0)
                if (error := self._telling()) is not None:
                    raise KafkaException(error) from None
                if self._left or time.monotonic() > deadline_mono:
                    raise
        # A topic that is made by asking for it has no leader for a moment.
        if found.error is not None and found.error.code() != KafkaError.LEADER_NOT_AVAILABLE:
            raise KafkaException(found.error)

    def send(self, topic: str, messages: list[StreamMessage]) -> None:
        """Return when every message is confirmed, or raise what the first failure was."""
        failures: list[KafkaError] = []
        waiting = 0

        def answered(error: KafkaError | None, _: object) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                failures.append(error)
            else:
                self._told.clear()

        self._told.clear()
        for message in messages:
            while not self._left:
                try:
                    self._producer.produce(topic, key=message.key, value=message.body, on_delivery=answered)
                    waiting += 1
                    break
                except BufferError:
                    self._producer.poll(_POLL_SECONDS)
        while waiting and not self._left:
            self._producer.poll(_POLL_SECONDS)
            if KafkaError._ALL_BROKERS_DOWN in self._told and time.monotonic() > self._told_mono + _DOWN_SECONDS:
                failures.append(self._telling() or self._told[KafkaError._ALL_BROKERS_DOWN])
                break
        if failures:
            timed_out = failures[0].code() == KafkaError._MSG_TIMED_OUT
            raise KafkaException((timed_out and self._telling()) or failures[0])

    def _telling(self) -> KafkaError | None:
        return next((self._told[code] for code in _TELLING if code in self._told), None)

    def leave(self) -> None:
        """Give up what is open. Whatever waits in the thread ends within a poll. A second call does nothing."""
        if self._left:
            return
        self._left = True
        self._pool.submit(self._producer.purge)
        self._pool.shutdown(wait=False)


class KafkaSink(StreamSink[Wire]):
    async def _connect(self) -> Wire:
        settings = {
            "acks": "all", "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5,
            "message.max.bytes": _MAX_MESSAGE_BYTES, "queue.buffering.max.kbytes": 65536,
            **configuration(self._address),
        }  # fmt: skip
        wire = Wire(settings)
        try:
            await wire.run(lambda: wire.find(self._address.name))
        except BaseException:
            wire.leave()
            raise
        return wire

    async def _send(self, connection: Wire, messages: list[StreamMessage]) -> None:
        await connection.run(lambda: connection.send(self._address.name, messages))

    def _message(self, record: Row) -> StreamMessage:
        """Brokers refuse messages above a length: the text of a page that long is cut, and `text_cut` says so."""
        message = message_of(record)
        room = int(self._address.options.get("message.max.bytes", _MAX_MESSAGE_BYTES)) - _ENVELOPE_BYTES
        while isinstance(record, Record) and record.text and len(message.body) + len(message.key) > room:
            share = room / (len(message.body) + len(message.key))
            record = msgspec.structs.replace(record, text=record.text[: int(len(record.text) * share * 0.9)])
            message = message_of(record)
            message = message._replace(body=message.body[:-1] + b',"text_cut":true}')
        return message

    async def _disconnect(self, connection: Wire) -> None:
        connection.leave()

    def _abandon(self, connection: Wire) -> None:
        connection.leave()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        if not isinstance(error, KafkaException):
            return super()._meaning(error, connected=connected)
        sentence, heals = meaning(error.args[0])
        quiet = QUIET_SECONDS if error.args[0].code() == KafkaError._FATAL else 0.0
        return TransientError(sentence, quiet_seconds=quiet) if heals else self._refused(sentence)
