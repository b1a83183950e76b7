"""Acknowledgement: the outcomes of visits, sent to the store as a batch that can be repeated.

A batch has one request number for each shard. The store remembers the last request of each worker, so a repeated batch
gets the reply that was lost, and another process can find out whether the batch of a dead worker was accepted.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from shoal.errors import InvalidInput, InvalidVisit
from shoal.frontier.epochs import mono
from shoal.frontier.journal import JournalEntry, LinkJournal
from shoal.frontier.shards import Shards
from shoal.frontier.visit_codec import brief
from shoal.model import validation
from shoal.model.lease import Lease
from shoal.model.page_history import PageHistory
from shoal.model.record import RecordKey
from shoal.model.visit import Outcome, OutcomeCode
from shoal.store import Argument


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a lease holder: the outcomes of visits, and the result of its last request."""

    lease: Lease
    outcomes: Sequence[Outcome]
    # Time from the end of the last request to this call; None when no request was made.
    finished_ago_seconds: float | None = 0.0
    # Whether the last request succeeded, and how long its response took.
    success: bool | None = None
    response_seconds: float | None = None
    # The host's delay by its response times.
    delay_seconds: float | None = None


class ShardAcks(msgspec.Struct, frozen=True):
    """The reports for one shard, under one request number."""

    shard: int
    request: str
    tokens: tuple[str, ...]
    # Empty in a batch that was unpacked: after a crash it can only be voided, which needs the tokens.
    done: tuple[Done, ...] = ()
    # New links to other shards, for the journal.
    links: tuple[JournalEntry, ...] = ()


class _PackedLease(msgspec.Struct, frozen=True, array_like=True):
    """Version 0.1 wrote the whole report after the token."""

    token: str


class _PackedShard(msgspec.Struct, frozen=True, array_like=True):
    shard: int
    request: str
    leases: tuple[_PackedLease, ...]


class _PackedBatch(msgspec.Struct, frozen=True, array_like=True):
    worker: str
    shards: tuple[_PackedShard, ...]


class AckBatch(msgspec.Struct, frozen=True):
    """Prepared acknowledgements. `pack` returns bytes for an output that must call `void_batch` after a crash."""

    worker: str
    shards: tuple[ShardAcks, ...]
    prepared_mono: float = 0.0

    def pack(self) -> bytes:
        shards = (_PackedShard(part.shard, part.request, tuple(map(_PackedLease, part.tokens))) for part in self.shards)
        return msgspec.msgpack.encode(_PackedBatch(self.worker, tuple(shards)))

    @classmethod
    def unpack(cls, packed: bytes) -> AckBatch:
        try:
            batch = msgspec.msgpack.decode(packed, type=_PackedBatch)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"Invalid acknowledgement batch; another version of Shoal wrote it: {error}.") from None
        shards = (
            ShardAcks(part.shard, part.request, tuple(lease.token for lease in part.leases)) for part in batch.shards
        )
        return cls(batch.worker, tuple(shards))


# A lookup here is cheaper than making an OutcomeCode.
_CODES = {code: code.value for code in OutcomeCode}


class WrittenBatch(msgspec.Struct, frozen=True, array_like=True):
    """Stored beside the records of a batch until the batch is committed: the packed batch, and the record keys."""

    acks: bytes
    keys: dict[str, list[RecordKey]]


def pack_written(batch: AckBatch, keys: dict[str, list[RecordKey]]) -> bytes:
    """`keys`: the keys of the records of each lease, by the token of the lease."""
    return msgspec.msgpack.encode(WrittenBatch(batch.pack(), keys))


def rejected_keys(lost: Iterable[str], keys: dict[str, list[RecordKey]]) -> list[RecordKey]:
    """The keys of records whose leases are lost: another worker makes those visits again.

    The other worker may be the same one: a batch can have a page under a lost lease and under the next lease. The
    output has one record of this page, which stays valid.
    """
    tokens = set(lost)
    valid = {key for token, lease_keys in keys.items() if token not in tokens for key in lease_keys}
    return [key for token in tokens for key in keys.get(token, ()) if key not in valid]


async def replay(void_batch: Callable[[AckBatch], Awaitable[list[str]]], packed: bytes) -> list[RecordKey]:
    """Settle the last batch of a dead worker. Returns the keys of records that must not become visible.

    A batch that was not committed is voided: it can never be committed later, and its visits are made again.
    """
    try:
        written = msgspec.msgpack.decode(packed, type=WrittenBatch)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"Invalid batch beside an output; another version of Shoal wrote it: {error}.") from None
    return rejected_keys(await void_batch(AckBatch.unpack(written.acks)), written.keys)


class Acknowledgement:
    """Prepares, commits and voids batches for one worker."""

    def __init__(self, shards: Shards, journal: LinkJournal, worker: str) -> None:
        self._shards = shards
        self._journal = journal
        self._worker = worker
        self._abandoned = 0
        # One call at a time for each shard: the store remembers only the last request of a worker.
        self._calling: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def prepare(self, done: Sequence[Done]) -> AckBatch:
        by_shard: dict[int, list[Done]] = {}
        for report in done:
            self._check(report)
            by_shard.setdefault(report.lease.shard, []).append(report)
        prepared_mono = mono()
        parts = tuple(
            ShardAcks(
                shard, self._shards.request(), tuple(report.lease.token for report in reports), tuple(reports),
                tuple(self._journal.take(shard)),
            )
            for shard, reports in by_shard.items()
        )  # fmt: skip
        name = f"{self._worker[-56:]}.{self._abandoned}" if self._abandoned else self._worker
        return AckBatch(name, parts, prepared_mono)

    async def commit(self, batch: AckBatch, replies: dict[int, list[str]] | None = None) -> list[str]:
        """Returns the tokens of lost leases. `replies` gets those of each shard as soon as the shard has replied."""
        replies = {} if replies is None else replies
        if any(len(part.done) < len(part.tokens) for part in batch.shards):
            raise InvalidInput("A batch that was unpacked can only be voided, not committed.")

        async def acknowledge(part: ShardAcks) -> None:
            replies[part.shard] = await self._acknowledge(part, batch)

        await asyncio.gather(*(acknowledge(part) for part in batch.shards if part.shard not in replies))
        return [token for reply in replies.values() for token in reply]

    def abandon(self) -> None:
        """Leave the last batch to `void`. Later batches get another worker name, so they do not replace it."""
        self._abandoned += 1

    async def void(self, batch: AckBatch) -> list[str]:
        """Returns the tokens of lost leases: all leases of the batch if it was not committed."""
        args: dict[int, list[Argument]] = {
            part.shard: [batch.worker, part.request, *part.tokens] for part in batch.shards
        }
        replies = await self._shards.call_all("void", args, replicated=True)
        return [token.decode() for reply in replies.values() for token in reply[2:]]

    def _check(self, done: Done) -> None:
        """Check everything before the first call: a report is accepted whole or not at all."""
        if not isinstance(done.lease, Lease):
            raise InvalidVisit(f"A lease is {done.lease!r}: pass a Lease that `lease` returned.")
        validation.whole("A lease's shard", done.lease.shard, 0, self._shards.count - 1)
        for name in ("finished_ago_seconds", "response_seconds", "delay_seconds"):
            value = getattr(done, name)
            if value is not None:
                validation.number(name, value, 0, 86400 if name == "delay_seconds" else 10**9)
        for outcome in done.outcomes:
            if not isinstance(outcome, Outcome):
                raise InvalidVisit(f"An outcome is {outcome!r}: create it with a method of Visit, e.g. visit.stored().")
            if not isinstance(outcome.code, str) or outcome.code not in _CODES:
                raise InvalidVisit(f"An outcome has the code {outcome.code!r}: create it with a method of Visit.")
            validation.whole("A visit's number", outcome.number, 0, validation.WIDEST)
            validation.number("The time of an outcome", outcome.seconds, 0, 10**9)
            if outcome.reason != "":
                brief(outcome.reason, "")
            if outcome.history:
                try:
                    PageHistory.unpack(outcome.history)
                except (ValueError, TypeError) as error:
                    raise InvalidVisit(f"An outcome has an invalid history: {error}.") from None

    async def _acknowledge(self, part: ShardAcks, batch: AckBatch) -> list[str]:
        async with self._calling[part.shard]:
            waited = mono() - batch.prepared_mono
            args: list[Argument] = [batch.worker, part.request, len(part.links)]
            for link in part.links:
                args += link
            for report in part.done:
                ago = report.finished_ago_seconds
                args += [
                    report.lease.token, report.lease.host, "" if ago is None else passed_ms(ago + waited),
                    "" if report.success is None else int(report.success),
                    "" if report.response_seconds is None else round(report.response_seconds * 1000),
                    "" if report.delay_seconds is None else round(report.delay_seconds * 1000), len(report.outcomes),
                ]  # fmt: skip
                for outcome in report.outcomes:
                    reason = brief(outcome.reason, "unknown") if outcome.reason else ""
                    args += [
                        outcome.number, _CODES[outcome.code], reason, round(outcome.seconds * 1000),
                        outcome.history,
                    ]  # fmt: skip
            reply = await self._shards.call("acknowledge", part.shard, args, replicated=True)
        return [token.decode() for token in reply[2:]]


def passed_ms(seconds: float) -> int:
    """Milliseconds, rounded down: a request then seems to have finished later, and its delay is never too short."""
    return math.floor(validation.number("finished_ago_seconds", seconds, 0, 10**9) * 1000)
