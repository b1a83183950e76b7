"""What every source of requests does. One object is one bridge's end of one list, topic or queue.

    messages = await source.take()        they stay the source's until they are done
    each is stored, answered or buried
    await source.done(messages)           they never come again

Whatever fails, the bridge closes the source and opens it again: what was taken and is not done comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from shoal.brokers.address import BrokerAddress
from shoal.brokers.connection import ConnectionFault
from shoal.errors import ShoalError

# How many messages a bridge holds, and how long it waits for the first.
MOST = 100
WAIT_SECONDS = 1.0


class SourceUnavailable(Exception):
    """The source cannot be used now; time or a person heals it. The message goes on after the source's name."""


class ReceivedMessage(NamedTuple):
    """`id` is the same when the message comes again, '' when its source cannot tell. `token` is the source's own.

    `reply` is where its sender wants answers, '' for the source's usual place.
    """

    body: bytes
    id: str
    token: Any
    reply: str = ""
    correlation: str | None = None


class Source(Protocol):
    """Every method may raise Away. ShoalError in one sentence says that this source can never work as it is."""

    shown: str

    async def open(self) -> None: ...

    async def take(self) -> list[ReceivedMessage]:
        """The next messages in their order, none after a while."""

    async def bury(self, message: ReceivedMessage, reason: str) -> None:
        """Keep a message that cannot be used, with the reason, where people find it."""

    async def answer(self, message: ReceivedMessage, place: str, answer: bytes) -> None:
        """Send an answer to `place`, or to where such answers go when it is ''."""

    async def done(self, messages: Sequence[ReceivedMessage]) -> None: ...

    async def close(self) -> None:
        """A second call does nothing."""


class QueueNames(NamedTuple):
    """Where dead letters and answers of a source go."""

    dead: str
    reply: str


def names_of(address: BrokerAddress) -> QueueNames:
    return QueueNames(
        address.options.get("dead") or f"{address.name}-dead", address.options.get("reply") or f"{address.name}-replies"
    )


def dead_letter(message: ReceivedMessage, reason: str) -> bytes:
    """One object in every technology, so that one program reads them all."""
    text = message.body.decode(errors="backslashreplace")
    return msgspec.json.encode({"reason": reason, "message": text})


def trouble(address: BrokerAddress, fault: ConnectionFault) -> Exception:
    """The exception that a bridge gets for a fault: SourceUnavailable if a retry makes sense, ShoalError if not."""
    if fault.transient:
        return SourceUnavailable(fault.sentence)
    return ShoalError(f"The source {address.shown} {fault.sentence}.")
