"""Kafka through librdkafka: the configuration of an address, a producer, and what errors mean.

librdkafka has threads of its own and calls back only when it is polled, so each producer has a thread that polls. The
producer is idempotent: a message that it repeats by itself is stored once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from shoal.brokers.address import BrokerAddress
from shoal.brokers.connection import CONNECT_SECONDS, ConnectionFault

T = TypeVar("T")

# librdkafka retries by itself for this long; after that the error is reported.
DELIVERY_SECONDS = 20.0
# The shorter time that applies when no broker can be reached.
_DOWN_SECONDS = 3.0
_METADATA_SECONDS = 2.0
_POLL_SECONDS = 0.1

_LOGIN = "check user and password, sasl.mechanism and security.protocol"
_GRANT = "ask an administrator to grant it"
_REFUSALS = {
    KafkaError._AUTHENTICATION: _LOGIN,
    KafkaError.SASL_AUTHENTICATION_FAILED: _LOGIN,
    KafkaError._SSL: "check ssl.ca.location and that the port speaks TLS",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _GRANT,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _GRANT,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _GRANT,
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic first",
    KafkaError._UNKNOWN_TOPIC: "create the topic first",
    KafkaError.TOPIC_EXCEPTION: "choose another topic",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic",
    KafkaError._INVALID_ARG: "check its options",
}
# Most specific first: a refused login explains more than that no broker can be reached.
_CAUSES = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)


def configuration(address: BrokerAddress) -> dict[str, Any]:
    """The properties that producers and consumers of this address share."""
    login: dict[str, Any] = {}
    if address.user:
        # A password is sent unencrypted only if security.protocol says so.
        login = {
            "sasl.username": address.user, "sasl.password": address.password, "sasl.mechanism": "PLAIN",
            "security.protocol": "sasl_ssl",
        }  # fmt: skip
    given = {name: value for name, value in address.options.items() if "." in name}
    return {
        "bootstrap.servers": address.hosts, "client.id": "shoal", "log_level": 0, "log.connection.close": False,
        "socket.keepalive.enable": True, "reconnect.backoff.max.ms": 2000, **login, **given,
    }  # fmt: skip


def fault_of(error: KafkaError) -> ConnectionFault:
    """An error of librdkafka in words."""
    # librdkafka's text consists of broker names and its own words; it never contains a password.
    message = error.str().rstrip(".")
    advice = _REFUSALS.get(error.code())
    if advice is not None:
        return ConnectionFault(f"refused: {message}; {advice}", transient=False)
    if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN):
        return ConnectionFault(f"cannot be reached ({message})", transient=True)
    if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
        return ConnectionFault("does not respond", transient=True)
    return ConnectionFault(f"is not ready ({message})", transient=True)


class PolledProducer:
    """A producer and the thread that polls it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        # The errors since the last confirmed message, by their code, and when the first of them came.
        self._errors: dict[int, KafkaError] = {}
        self._errors_since_mono = 0.0
        self._closed = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kafka")
        self._producer = Producer(
            {"message.timeout.ms": int(DELIVERY_SECONDS * 1000), **settings, "error_cb": self._note}
        )

    def _note(self, error: KafkaError) -> None:
        if not self._errors:
            self._errors_since_mono = time.monotonic()
        self._errors[error.code()] = error

    async def run(self, work: Callable[[], T]) -> T:
        """Call `check_topic` or `send` in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def check_topic(self, topic: str) -> None:
        """KafkaException if there is no such topic, or no broker responds."""
        deadline_mono = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                metadata = self._producer.list_topics(topic, timeout=_METADATA_SECONDS).topics[topic]
                break
            except KafkaException:
                self._producer.poll(0)
                if (error := self._cause()) is not None:
                    raise KafkaException(error) from None
                if self._closed or time.monotonic() > deadline_mono:
                    raise
        # A topic that the broker creates on this request has no leader for a moment.
        if metadata.error is not None and metadata.error.code() != KafkaError.LEADER_NOT_AVAILABLE:
            raise KafkaException(metadata.error)

    def send(self, topic: str, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages, each a key and a body. Return when all are confirmed, or raise the first failure."""
        failures: list[KafkaError] = []
        waiting = 0

        def delivered(error: KafkaError | None, _: object) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                failures.append(error)
            else:
                self._errors.clear()

        self._errors.clear()
        for key, body in messages:
            while not self._closed:
                try:
                    self._producer.produce(topic, key=key, value=body, on_delivery=delivered)
                    waiting += 1
                    break
                except BufferError:
                    self._producer.poll(_POLL_SECONDS)
        while waiting and not self._closed:
            self._producer.poll(_POLL_SECONDS)
            down = self._errors.get(KafkaError._ALL_BROKERS_DOWN)
            if down is not None and time.monotonic() > self._errors_since_mono + _DOWN_SECONDS:
                failures.append(self._cause() or down)
                break
        if failures:
            timed_out = failures[0].code() == KafkaError._MSG_TIMED_OUT
            raise KafkaException((timed_out and self._cause()) or failures[0])

    def _cause(self) -> KafkaError | None:
        return next((self._errors[code] for code in _CAUSES if code in self._errors), None)

    def close(self) -> None:
        """Drop unconfirmed messages. A call in the thread returns within one poll. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._pool.submit(self._producer.purge)
        self._pool.shutdown(wait=False)
