"""DNS lookups: one at a time per origin. Every address in a response is checked before any connection is opened.

libcurl gets the addresses and never looks up a name itself. So a mixed response (a public address for the check, a
private one for the connection) can be refused as a whole, and a test can replace the resolver.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import ada_url

from shoal.errors import FetchError
from shoal.fetch.address_guard import AddressGuard
from shoal.fetch.open_files import EXHAUSTED, NoSocket
from shoal.politeness.backoff import Fault
from shoal.settings import masked

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a name; raises OSError if it has none."""

# getaddrinfo returns no lifetime. A failed connection discards the addresses immediately, so this limits only how long
# a site that moved and left its old server running is requested at its old address.
KEEP_SECONDS = 300.0
KEEP_ORIGINS = 20_000
LOOKUPS_AT_ONCE = 128
_NO_ROOM = ("no room", "this machine has no free file descriptor or thread for a lookup")
_PORTS = {"http": 80, "https": 443, "ftp": 21}


class Origin:
    """Scheme, host and port, with the addresses that may be connected to."""

    __slots__ = (
        "addresses",
        "dead_mono",
        "expires_mono",
        "facts",
        "host",
        "literal",
        "lookup",
        "plain",
        "port",
        "prefix",
        "resolve",
        "reusable",
        "scheme",
        "socket",
    )

    def __init__(self, prefix: str) -> None:
        """`prefix` is the URL up to the path. The origin is `plain` if the parser spells the prefix the same way."""
        parsed = ada_url.URL(prefix + "/")
        self.prefix = prefix
        self.plain = parsed.origin == prefix
        self.scheme = parsed.protocol[:-1]
        self.host = parsed.hostname
        self.port = int(parsed.port or _PORTS[self.scheme])
        # Whether an FTP server supports MLSD for listings: assumed until it rejects the command.
        self.facts = True
        self.literal = _is_literal(self.host)
        self.addresses: tuple[str, ...] = (self.host.strip("[]"),) if self.literal else ()
        self.expires_mono = float("inf") if self.literal else 0.0
        # The value of CURLOPT_RESOLVE. The plus lets libcurl drop the entry after a minute; every request sets it.
        self.resolve: list[str] = []
        # The socket of the connection that was opened last, and when a connection was found closed.
        self.socket = -1
        self.dead_mono = float("-inf")
        # Whether its connections may be reused: not after a response that states its length twice.
        self.reusable = True
        self.lookup: asyncio.Task[tuple[str, str]] | None = None

    def forget(self) -> None:
        """A connection failed: the addresses may be old."""
        if not self.literal:
            self.expires_mono = 0.0


class OriginCache:
    """Recently used origins, and lookups in progress."""

    def __init__(self, guard: AddressGuard, resolver: Resolver | None) -> None:
        self._guard = guard
        self._resolver = resolver or _Threads().resolve
        self._origins: OrderedDict[str, Origin] = OrderedDict()

    def origin(self, prefix: str) -> Origin:
        origin = self._origins.get(prefix)
        if origin is None:
            origin = self._origins[prefix] = Origin(prefix)
            if len(self._origins) > KEEP_ORIGINS:
                self._origins.popitem(last=False)
        return origin

    async def look_up(self, origin: Origin, seconds: float) -> None:
        """Update the origin's addresses; raises FetchError if none of them may be connected to.

        NoSocket when this machine has no file or thread left for the lookup.
        """
        if origin.lookup is None:
            # Requests to one origin share a lookup, which continues if one of the requests is cancelled.
            origin.lookup = asyncio.create_task(self._lookup(origin))
        try:
            async with asyncio.timeout(seconds):
                reason, trouble = await asyncio.shield(origin.lookup)
        except TimeoutError:
            reason, trouble = "lookup timed out", f"its name was not looked up within {seconds:.3g} s"
        if (reason, trouble) == _NO_ROOM:
            raise NoSocket
        if trouble:
            raise FetchError(
                f"{masked(origin.prefix)} was not requested: {trouble}.", reason=reason,
                fault=Fault.UNKNOWN_HOST if reason == Fault.UNKNOWN_HOST else Fault.UNRESOLVED,
            )  # fmt: skip

    def check(self, origin: Origin) -> None:
        """Raise FetchError if any address of the origin is refused, even if others are allowed."""
        for address in origin.addresses:
            if reason := self._guard.refuses(address, origin.port, ftp=origin.scheme == "ftp"):
                origin.forget()
                raise forbidden(origin.prefix, address, origin.port, reason)

    def close(self) -> None:
        for origin in self._origins.values():
            if origin.lookup is not None:
                origin.lookup.cancel()

    async def _lookup(self, origin: Origin) -> tuple[str, str]:
        """Look up the name. Returns why that failed, as a short reason and a sentence; '' if it did not.

        It does not raise, because there may be no caller left to receive an exception.
        """
        try:
            addresses = await self._resolver(origin.host)
        except NoSocket:
            return _NO_ROOM
        except OSError as error:
            if error.errno in EXHAUSTED:
                return _NO_ROOM
            # Our own name server failed, which says nothing about the host.
            reason = "lookup failed" if error.errno == socket.EAI_AGAIN else Fault.UNKNOWN_HOST.value
            return reason, f"its name does not resolve ({error.strerror or error})"
        except UnicodeError:
            return Fault.UNKNOWN_HOST.value, "its name cannot be looked up (a part of it is empty or too long)"
        finally:
            origin.lookup = None
        if not addresses:
            return Fault.UNKNOWN_HOST.value, "its name has no address"
        origin.addresses = tuple(dict.fromkeys(addresses))
        origin.expires_mono = time.monotonic() + KEEP_SECONDS
        joined = ",".join(f"[{address}]" if ":" in address else address for address in origin.addresses)
        origin.resolve = [f"+{origin.host}:{origin.port}:{joined}"]
        return "", ""


def forbidden(prefix: str, address: str, port: int, reason: str) -> FetchError:
    explanation = f"the address {address} is {reason}; --allow-network or fetch.allow_networks allows a private network"
    if reason == "port":
        explanation = f"port {port} belongs to another kind of service and is never allowed"
    return FetchError(
        f"{masked(prefix)} was not requested: {explanation}.",
        fault=Fault.FORBIDDEN_ADDRESS,
        reason=f"forbidden address: {reason}",
    )


def _is_literal(host: str) -> bool:
    if host.startswith("["):
        return True
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


class _Threads:
    """The system's resolver, with one thread per lookup.

    Not a pool: Python joins the threads of an executor when it exits, so a silent name server would delay the exit of
    a worker by half a minute. A thread costs 0.1 ms, and a lookup is needed only every few minutes.
    """

    def __init__(self) -> None:
        self._limit = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def resolve(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        async with self._limit:
            done: asyncio.Future[list[str]] = loop.create_future()

            def finish(addresses: list[str], error: BaseException | None) -> None:
                if done.cancelled():
                    return
                if error is None:
                    done.set_result(addresses)
                else:
                    done.set_exception(error)

            def look_up() -> None:
                addresses: list[str] = []
                trouble: BaseException | None = None
                try:
                    results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    addresses = [str(result[4][0]) for result in results]
                except (OSError, UnicodeError) as error:
                    trouble = error
                with contextlib.suppress(RuntimeError):  # the loop is closed, and no caller waits
                    loop.call_soon_threadsafe(finish, addresses, trouble)

            try:
                threading.Thread(target=look_up, name="lookup", daemon=True).start()
            except RuntimeError as error:
                raise NoSocket from error
            return await done
