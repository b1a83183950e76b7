"""Redis and Valkey as brokers: the server of a list or stream, and what its errors mean."""

from __future__ import annotations

import ssl

from shoal.brokers.address import BrokerAddress
from shoal.brokers.connection import ConnectionFault
from shoal.errors import SettingsError, SinkRefused
from shoal.settings import masked
from shoal.store.address import StoreAddress, parse_address
from shoal.store.connection import ConnectionLost, ReplyError
from shoal.store.reply_errors import ReplyFault, classify

_REFUSALS = {
    "NOAUTH": "check user and password",
    "WRONGPASS": "check user and password",
    "NOPERM": "ask an administrator to grant it",
    "WRONGTYPE": "choose another name",
}
_TRANSIENT = {"OOM": "is out of memory", "MISCONF": "cannot write to its disk", "NOREPLICAS": "has no replica in sync"}


def server_of(address: BrokerAddress, what: str = "output") -> StoreAddress:
    """The server of a list or stream, as the store's client names servers."""
    scheme, _, rest = address.uri.partition("://")
    tls = "&".join(f"{name}={value}" for name, value in address.options.items() if name.startswith("ssl_"))
    netloc = rest.partition("/")[0]
    try:
        return parse_address(f"{scheme}://{netloc}/{address.namespace}" + (f"?{tls}" if tls else ""))
    except SettingsError as error:
        reason = masked(str(error)).removeprefix("The ")
        raise SinkRefused(f"The {what} {address.shown} cannot be used: the {reason}") from None


def fault_of(error: Exception) -> ConnectionFault | None:
    """An error of a connection in words; None for an error that is not the server's."""
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason
        return ConnectionFault(f"cannot establish a TLS connection: {reason}", transient=False)
    if isinstance(error, ConnectionLost):
        return ConnectionFault(f"cannot be reached ({str(error).partition(': ')[2]})", transient=True)
    if isinstance(error, ReplyError):
        message = str(error).partition(". ")[0].rstrip(".")
        code = message.partition(" ")[0]
        if code in _TRANSIENT:
            return ConnectionFault(f"{_TRANSIENT[code]} ({message})", transient=True)
        if classify(message) is not ReplyFault.FINAL:
            return ConnectionFault(f"is not ready ({message})", transient=True)
        # Older servers put a wrong password inside an ERR.
        advice = _REFUSALS.get(code, "check user and password" if "password" in message else "")
        return ConnectionFault(f"refused: {message}" + (f"; {advice}" if advice else ""), transient=False)
    return None
