"""What every connection to a broker or a database shares: its time limit, and its errors in words."""

from __future__ import annotations

import os
import socket
import ssl
from typing import NamedTuple

CONNECT_SECONDS = 10.0


class ConnectionFault(NamedTuple):
    """An error in words. `sentence` continues after the name of the output or source: "cannot be reached".

    `transient` is true if the error can go away, by itself or by a repair, so that a retry makes sense.
    """

    sentence: str
    transient: bool


def describe_os_error(error: OSError) -> str:
    """The reason for a failed system call, e.g. "Connection refused", without addresses and numbers."""
    if isinstance(error, socket.gaierror | ssl.SSLError) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)
