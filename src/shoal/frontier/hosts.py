"""Hosts: the state of a host, shared by all crawls and machines."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidUrl, StoreCorrupt
from shoal.frontier import keys
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.frontier.visit_codec import brief
from shoal.model.validation import WIDEST, milliseconds, whole
from shoal.politeness.backoff import DEFAULT_BACK_OFF, BackOff
from shoal.urls.canonical import canonical

# Characters that end the host in a URL, or cannot be in a URL.
_FOREIGN = frozenset("/?#@\\ \t\r\n\0")


class Host(msgspec.Struct, frozen=True):
    """The state of a host. Times are seconds since 1970 on the store's clock, 0 = never."""

    name: str
    crawls_waiting: int
    leases: int
    delay_seconds: float | None
    places: int | None
    crawl_delay_seconds: float
    adaptive_delay_seconds: float
    robots_known: bool
    gate_at: float
    backoff_until: float
    backoff_reason: str
    failures: int
    blocked: str
    last_finished_at: float
    last_successful_at: float
    mean_response_seconds: float


class PastBackOff(msgspec.Struct, frozen=True, kw_only=True):
    """A back-off of a host.

    at         start of the back-off, in seconds since 1970 on the store's clock
    seconds    length of the pause; 0 if an operator ended the back-off, or the host was given up at once
    failures   number of failures in a row
    given_up   whether the host was given up, so that its waiting visits failed
    reason     the last failure
    """

    at: float
    seconds: float
    failures: int
    given_up: bool
    reason: str


class Hosts:
    """Reached as `frontier.hosts`. A host is a name, with its port unless that is 80 or 443."""

    def __init__(self, shards: Shards, host_failures: int = 10, back_off: BackOff = DEFAULT_BACK_OFF) -> None:
        """`back_off`: the pauses of failing hosts, for `leases.host_pause`."""
        self._shards = shards
        self.back_off = back_off
        self.host_failures = whole("host_failures", host_failures, 0, WIDEST)

    async def get(self, host: str) -> Host:
        return await self._set(host)

    async def set_delay(self, host: str, seconds: float | None) -> Host:
        """Set a delay that replaces the crawls' own; None removes it. A longer Crawl-delay still applies."""
        return await self._set(host, d="" if seconds is None else milliseconds("delay", seconds, 86400))

    async def set_places(self, host: str, places: int | None) -> Host:
        """Set how many requests may be open at once. It is one while robots.txt is unknown or has a Crawl-delay."""
        return await self._set(host, n="" if places is None else whole("places", places, 1, 32))

    async def set_robots(self, host: str, *, crawl_delay_seconds: float = 0.0) -> Host:
        """robots.txt is known, with this Crawl-delay (0 = none)."""
        return await self._set(host, rk=1, cd=milliseconds("crawl delay", crawl_delay_seconds, 86400))

    async def postpone(
        self,
        host: str,
        seconds: float,
        *,
        failed: bool = False,
        host_failures: int | None = None,
        reason: str = "unreachable",
        pardoned: int = 0,
        after_success: bool = False,
        requested: bool = False,
    ) -> bool:
        """Send no request to the host for this time, from any worker.

        With `failed`, a failure is counted; after `host_failures` in a row (0: never) the host is given up: its visits
        fail with this reason, so that every crawl ends. Returns whether it was given up. `pardoned`: this many failures
        are not counted. `after_success`: the failure is the first in a row. `requested`: by the server.
        """
        name = self.name(host)
        most = self.host_failures if host_failures is None else whole("host_failures", host_failures, 0, WIDEST)
        counted = 2 if failed and after_success else int(failed)
        args = (
            name, milliseconds("back-off", seconds, 31536000), counted, most + pardoned if most else 0,
            brief(reason, "unreachable"), int(requested),
        )  # fmt: skip
        reply = await self._shards.call("postpone", self._shards.of(name), args, replicated=True)
        return bool(reply[3])

    async def back_offs(self, host: str) -> list[PastBackOff]:
        """The last back-offs of the host, newest first: at most 20 of the last seven days."""
        name = self.name(host)
        key = keys.back_offs(self._shards.prefixes[self._shards.of(name)], name)
        past = []
        for line in await self._shards.command("LRANGE", key, 0, -1):
            parts = line.decode(errors="replace").split(" ", 4)
            # A line of another version counts as missing.
            if len(parts) == 5 and all(part.isdecimal() for part in parts[:4]):
                at, length, failures, given_up = (int(part) for part in parts[:4])
                past.append(
                    PastBackOff(
                        at=at / 1000, seconds=length / 1000, failures=failures, given_up=bool(given_up), reason=parts[4]
                    )
                )
        return past

    async def add_bytes(self, crawl_key: str, host: str, count: int) -> int:
        """Count bytes that a crawl has received from a host, and return the total. A count of 0 only reads it.

        A deleted crawl has a total of 0. A call whose reply was lost may count twice.
        """
        args = (crawl_key, host, whole("bytes", count, 0, WIDEST))
        reply = await self._shards.call("host_bytes", self._shards.of(host), args)
        return 0 if reply[0] == Status.UNKNOWN else int(reply[1])

    async def block(self, host: str, reason: str = "blocked") -> Host:
        """Block the host: waiting visits fail with this reason and can be retried, new URLs are refused."""
        return await self._set(host, x=brief(reason, "blocked"))

    async def unblock(self, host: str) -> Host:
        """Allow requests again, and reset failures and back-off."""
        return await self._set(host, x="", reset=1)

    async def waiting(self, spider: str = "") -> tuple[int, int]:
        """How many hosts have waiting visits of a spider: ready now, and ready later."""
        calls = dict.fromkeys(range(self._shards.count), (spider,))
        replies = (await self._shards.call_all("waiting", calls)).values()
        return sum(reply[2] for reply in replies), sum(reply[3] for reply in replies)

    def name(self, host: str) -> str:
        """The canonical name of the host."""
        if not isinstance(host, str) or not host or not _FOREIGN.isdisjoint(host):
            raise InvalidUrl(f"{host!r} is not a valid host: write its name, with its port unless that is 80 or 443.")
        return canonical(f"http://{host}/").host

    async def _set(self, host: str, **changes: str | int) -> Host:
        name = self.name(host)
        args: list[str | int] = [name]
        for field, value in changes.items():
            args += [field, value]
        reply = await self._shards.call("host", self._shards.of(name), args, replicated=bool(changes))
        try:
            return _host(name, reply)
        except ValueError as error:
            raise StoreCorrupt(f"Invalid record of host {name} in the store: {error}.") from None


def _host(name: str, reply: list[Any]) -> Host:
    fields: dict[str, Any] = {k.decode(errors="replace"): v for k, v in zip(reply[3::2], reply[4::2], strict=True)}

    def of_slots(letter: str) -> list[bytes]:
        """The values of a field that every slot has."""
        return [v for k, v in fields.items() if k == letter or (k[0] == letter and k[1:].isdigit())]

    def latest(letter: str) -> float:
        return max((int(float(v)) for v in of_slots(letter)), default=0) / 1000

    def seconds(field: str) -> float:
        return int(fields.get(field, 0)) / 1000

    return Host(
        name=name, crawls_waiting=reply[2], leases=len(of_slots("k")),
        delay_seconds=seconds("d") if "d" in fields else None, places=int(fields["n"]) if "n" in fields else None,
        crawl_delay_seconds=seconds("cd"), adaptive_delay_seconds=seconds("ad"), robots_known="rk" in fields,
        gate_at=latest("g"), backoff_until=seconds("b"),
        backoff_reason=fields.get("br", b"").decode(errors="replace"), failures=int(fields.get("f", 0)),
        blocked=fields.get("x", b"").decode(errors="replace"), last_finished_at=latest("t"),
        last_successful_at=seconds("ts"), mean_response_seconds=seconds("m"),
    )  # fmt: skip
