"""The contract of every source of requests. One object is one bridge's end of one list, topic or queue.

    messages = await source.receive()         they belong to the source until they are acknowledged
    each message is stored, replied to or rejected
    await source.acknowledge(messages)        they are never delivered again

After any failure, the bridge closes the source and opens it again: messages that were received and not acknowledged are
delivered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from shoal.brokers.address import BrokerAddress
from shoal.brokers.connection import ConnectionFault
from shoal.errors import ShoalError

# Messages that a bridge holds at most, and how long it waits for the first one.
BATCH_SIZE = 100
WAIT_SECONDS = 1.0


class SourceUnavailable(Exception):
    """The source cannot be used for now. The message is the end of a sentence that starts with the source's name."""


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
    """Every method may raise SourceUnavailable. A ShoalError means that the source cannot work as it is configured."""

    shown: str

    async def open(self) -> None: ...

    async def receive(self) -> list[ReceivedMessage]:
        """The next messages in their order; an empty list after WAIT_SECONDS."""

    async def reject(self, message: ReceivedMessage, reason: str) -> None:
        """Put an unusable message into the dead-letter queue, with the reason."""

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


def dead_letter(message: ReceivedMessage, reason: str) -> bytes:
    """The same JSON object in every technology, so that one program reads them all."""
    text = message.body.decode(errors="backslashreplace")
    return msgspec.json.encode({"reason": reason, "message": text})


def to_error(address: BrokerAddress, fault: ConnectionFault) -> Exception:
    """The exception that a bridge gets for a fault: SourceUnavailable if a retry makes sense, ShoalError if not."""
    if fault.transient:
        return SourceUnavailable(fault.sentence)
    return ShoalError(f"The source {address.shown} {fault.sentence}.")
