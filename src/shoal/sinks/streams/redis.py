"""Redis and Valkey: records appended to a list (RPUSH), or with `?stream` to a stream (XADD).

A group of messages is one command or one pipeline on a connection of its own, apart from the store's. What the server
has answered for is as durable as the server is set up to be.
"""

from __future__ import annotations

import ssl

from shoal.errors import SettingsError, SinkRefused
from shoal.settings import masked
from shoal.sinks.retry import QUIET_SECONDS, TransientError
from shoal.sinks.streams.stream import BrokerAddress, StreamMessage, StreamSink
from shoal.store.address import StoreAddress as StoreAddress
from shoal.store.address import parse_address
from shoal.store.connection import Connection, ConnectionLost, ReplyError, dial, pack
from shoal.store.reply_errors import ReplyFault, classify

_REFUSALS = {
    "NOAUTH": "check user and password",
    "WRONGPASS": "check user and password",
    "NOPERM": "let an administrator grant it",
    "WRONGTYPE": "choose another name",
}
_HEALS = {"OOM": "has no memory left", "MISCONF": "cannot write to its disk", "NOREPLICAS": "has no replica in step"}


def server_of(address: BrokerAddress, what: str = "output") -> StoreAddress:
    """The server of a list or stream, as the store's client knows servers."""
    scheme, _, rest = address.uri.partition("://")
    tls = "&".join(f"{name}={value}" for name, value in address.options.items() if name.startswith("ssl_"))
    netloc = rest.partition("/")[0]
    try:
        return parse_address(f"{scheme}://{netloc}/{address.place}" + (f"?{tls}" if tls else ""))
    except SettingsError as error:
        reason = masked(str(error)).removeprefix("The ")
        raise SinkRefused(f"The {what} {address.shown} cannot be used: the {reason}") from None


def meaning(error: Exception) -> tuple[str, bool] | None:
    """What an error of a link says after the name of what it is about, and whether time heals it."""
    if isinstance(error, ssl.SSLError):
        return f"has a TLS connection that fails: {getattr(error, 'verify_message', '') or error.reason}", False
    if isinstance(error, ConnectionLost):
        return f"cannot be reached ({str(error).partition(': ')[2]})", True
    if isinstance(error, ReplyError):
        said = str(error).partition(". ")[0].rstrip(".")
        code = said.partition(" ")[0]
        if code in _HEALS:
            return f"{_HEALS[code]} ({said})", True
        if classify(said) is not ReplyFault.FINAL:
            return f"is not ready ({said})", True
        # Older servers put a wrong password inside an ERR.
        advice = _REFUSALS.get(code, "check user and password" if "password" in said else "")
        return f"refuses: {said}" + (f"; {advice}" if advice else ""), False
    return None


class RedisSink(StreamSink[Connection]):
    async def _connect(self) -> Connection:
        return await dial(server_of(self._address))

    async def _send(self, connection: Connection, messages: list[StreamMessage]) -> None:
        name, options = self._address.name, self._address.options
        if "stream" in options:
            kept = ("MAXLEN", "~", options["maxlen"]) if "maxlen" in options else ()
            commands = [pack(("XADD", name, *kept, "*", "key", one.key, "json", one.body)) for one in messages]
        else:
            commands = [pack(("RPUSH", name, *(one.body for one in messages)))]
        for reply in await connection.send(b"".join(commands), len(commands)):
            if isinstance(reply, ReplyError):
                raise reply

    async def _disconnect(self, connection: Connection) -> None:
        connection.close()

    def _abandon(self, connection: Connection) -> None:
        connection.close()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        found = meaning(error)
        if found is None:
            return super()._meaning(error, connected=connected)
        sentence, heals = found
        lost = connected and isinstance(error, ConnectionLost)
        return TransientError(sentence, quiet_seconds=QUIET_SECONDS * lost) if heals else self._refused(sentence)
