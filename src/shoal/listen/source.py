"""The contract of every source of requests. One object is one bridge's end of one list, topic or queue.

    messages = await source.receive()         they belong to the source until they are acknowledged
    each message is stored, replied to or rejected
    await source.acknowledge(messages)        they are never delivered again

After any failure, the bridge closes the source and opens it again: messages that were received and not acknowledged are
delivered again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from shoal.brokers.address import BrokerAddress
from shoal.brokers.connection import ConnectionFault
from shoal.errors import ShoalError

# Messages that a bridge holds at most, and how long it waits for the first one.
BATCH_SIZE = 100
WAIT_SECONDS = 1.0
# Kafka's brokers accept about 1,000,000 bytes by default.
MAX_LETTER_BYTES = 900_000


class SourceUnavailable(Exception):
    """The source cannot be used for now. The message is the end of a sentence that starts with the source's name."""


class DeliveryRefused(Exception):
    """The broker refused one reply or dead letter. The source itself works. The message says why."""


class ReceivedMessage(NamedTuple):
    body: bytes
    # The same whenever the message is delivered; '' when the source has no such id.
    id: str
    # What the source needs to acknowledge the message.
    token: Any
    # Where the sender wants the reply; '' means the source's own reply queue.
    reply_to: str = ""
    correlation_id: str | None = None


class Source(Protocol):
    """Every method may raise SourceUnavailable. A ShoalError means that the source cannot work as it is configured.

    `reject` and `reply` raise DeliveryRefused instead: a message must not be able to stop its bridge.
    """

    shown: str
    # A request may name a reply queue whose name starts with one of these.
    reply_prefixes: tuple[str, ...]

    async def open(self) -> None: ...

    async def receive(self) -> list[ReceivedMessage]:
        """The next messages in their order; an empty list after WAIT_SECONDS."""

    async def reject(self, message: ReceivedMessage, letter: bytes) -> None:
        """Put the dead letter of an unusable message into the dead-letter queue."""

    async def reply(self, message: ReceivedMessage, queue: str, body: bytes) -> None:
        """Send a reply to `queue`, or to the source's own reply queue when `queue` is ''."""

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None: ...

    async def close(self) -> None:
        """A second call does nothing."""


class QueueNames(NamedTuple):
    dead_letters: str
    replies: str


def queue_names(address: BrokerAddress) -> QueueNames:
    """Where a source sends dead letters and replies."""
    return QueueNames(
        address.options.get("dead") or f"{address.name}-dead", address.options.get("reply") or f"{address.name}-replies"
    )


def reply_prefixes(address: BrokerAddress, *more: str) -> tuple[str, ...]:
    """Names of reply queues that requests may choose: those in `?reply_prefix=`, or the source's own and `more`."""
    given = address.options.get("reply_prefix", "").split(",")
    return tuple(filter(None, given)) or (queue_names(address).replies, *more)


def dead_letter(message: ReceivedMessage, reason: str, max_bytes: int = MAX_LETTER_BYTES) -> bytes:
    """The same JSON object in every technology, so that one program reads them all.

    A letter longer than `max_bytes` has only the head of its message, and the size and hash of the whole.
    """
    text = message.body.decode(errors="backslashreplace")
    letter = msgspec.json.encode({"reason": reason, "message": text})
    if len(letter) <= max_bytes:
        return letter
    # A byte takes at most six in JSON, and a reason may quote some of the message.
    head = message.body[: max_bytes // 12].decode(errors="backslashreplace")
    return msgspec.json.encode(
        {
            "reason": reason[: max_bytes // 24], "message": head, "cut": True, "bytes": len(message.body),
            "sha256": hashlib.sha256(message.body).hexdigest(),
        }
    )  # fmt: skip


def to_refusal(error: Exception) -> Exception:
    """The exception that `reply` and `reject` raise for an error of `to_error`."""
    return DeliveryRefused(str(error)) if isinstance(error, ShoalError) else error


def to_error(address: BrokerAddress, fault: ConnectionFault) -> Exception:
    """The exception that a bridge gets for a fault: SourceUnavailable if a retry makes sense, ShoalError if not."""
    if fault.transient:
        return SourceUnavailable(fault.sentence)
    return ShoalError(f"The source {address.shown} {fault.sentence}.")
