"""The lease renewer: renews the leases of a process, in a thread with its own connection.

A page that takes long to parse, or a callback that blocks, delays the event loop but not this thread, so no lease
expires. A loop that is blocked for longer than a lease uses none of its hosts: other workers may have them, and only
the lease of the page that is being parsed is still renewed. A lease that cannot be renewed is marked as lost; its
holder checks that before every request.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from shoal.errors import ShoalError
from shoal.frontier import Frontier, mono
from shoal.leases.held_lease import HeldLease
from shoal.settings import Settings

# Renewing at a third of the lease leaves room for one lost renewal.
_SHARE = 3
_MOST_PER_CALL = 200


class LeaseRenewer(threading.Thread):
    def __init__(
        self, settings: Settings, frontier: Frontier, on_trouble: Callable[[str], None], *,
        parsing: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`frontier` is that of the leases. It belongs to another event loop: only its name and its clock are used.

        `parsing` returns the token of the lease whose page is being parsed; '' if none is.
        """
        super().__init__(name="lease renewer", daemon=True)
        self._settings = settings
        self._frontier = frontier
        self._on_trouble = on_trouble
        self._ttl = settings.frontier.lease_seconds
        self._parsing = parsing
        # When the event loop last called `tick`; None if it never does.
        self._ticked_mono: float | None = None
        self._stopped = threading.Event()
        self.leases: dict[str, HeldLease] = {}

    def add(self, lease: HeldLease) -> None:
        self.leases[lease.lease.token] = lease

    def drop(self, lease: HeldLease) -> None:
        self.leases.pop(lease.lease.token, None)

    def tick(self) -> None:
        """Report that the event loop runs. Call this several times within the duration of a lease, or never."""
        self._ticked_mono = mono()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        frontier: Frontier | None = None
        # The calls in progress, by shard: a shard that does not respond must not delay the leases of other shards.
        renewing: dict[int, asyncio.Task[None]] = {}
        # The connection is opened when the first lease needs a renewal. Blocking this loop is fine while it has nothing
        # else to do: a thread of a pool that waited in its place would delay the exit of the program.
        while not self._stopped.wait(0.0 if renewing else self._ttl / 12):
            try:
                due: dict[int, list[HeldLease]] = {}
                for lease in self._due():
                    if lease.lease.shard not in renewing:
                        due.setdefault(lease.lease.shard, []).append(lease)
                if due:
                    if frontier is None:
                        frontier = await Frontier.from_settings(self._settings, worker=self._frontier.worker)
                        frontier.share_clock(self._frontier)
                    for shard, leases in due.items():
                        renewing[shard] = asyncio.create_task(self._renew(frontier, leases[:_MOST_PER_CALL]))
                if renewing:
                    await asyncio.wait(renewing.values(), timeout=self._ttl / 12)
                for shard, task in list(renewing.items()):
                    if task.done():
                        del renewing[shard]
                        task.result()
            except ShoalError as error:
                self._on_trouble(str(error))
        for task in renewing.values():
            task.cancel()
        if frontier is not None:
            with contextlib.suppress(ShoalError):
                await frontier.close()

    def _due(self) -> list[HeldLease]:
        now = mono()
        before = now - self._ttl / _SHARE
        due = [lease for lease in list(self.leases.values()) if lease.renewed_mono < before and not lease.lost]
        if self._ticked_mono is not None and now - self._ticked_mono > self._ttl:
            token = self._parsing()
            return [lease for lease in due if lease.lease.token == token]
        return due

    async def _renew(self, frontier: Frontier, leases: list[HeldLease]) -> None:
        renewals = await frontier.renew([lease.lease for lease in leases])
        for lease, renewal in zip(leases, renewals, strict=True):
            if renewal is None:
                # It may have been acknowledged in the meantime; then this has no effect.
                lease.lost = True
            else:
                lease.trusted_until_mono = renewal.trusted_until_mono
                lease.renewed_mono = mono()
