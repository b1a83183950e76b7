"""Messages of a service to systemd, by the protocol of sd_notify(3): ready, status, watchdog, stopping.

Without NOTIFY_SOCKET in the environment nothing is sent. A message that cannot be sent is dropped: the service manager
acts on missing messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

_STATUS_SECONDS = 5.0


class ServiceManager:
    """The service manager that started this process, if there is one."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        address = environ.get("NOTIFY_SOCKET", "")
        # An abstract socket is written with @ in place of its leading zero byte.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(environ)

    def send(self, **fields: object) -> None:
        """Send fields such as READY=1. A status is one line."""
        if not self._address:
            return
        message = "\n".join(f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outgoing:
            outgoing.setblocking(False)
            outgoing.connect(self._address)
            outgoing.send(message.encode())

    def ready(self, status: str) -> None:
        self.send(READY=1, STATUS=status)

    def stopping(self, status: str) -> None:
        self.send(STOPPING=1, STATUS=status)

    async def keep_informed(self, status: Callable[[], str], problem: Callable[[], str] = lambda: "") -> None:
        """Send the status, and the watchdog's sign of life unless there is a problem, until cancelled."""
        # systemd.service(5) recommends half of the watchdog's time.
        pause = min(_STATUS_SECONDS, self.watchdog_seconds / 2 or _STATUS_SECONDS)
        while self._address:
            if trouble := problem():
                self.send(STATUS=trouble)
            else:
                self.send(STATUS=status(), **({"WATCHDOG": 1} if self.watchdog_seconds else {}))
            await asyncio.sleep(pause)


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """The time after which systemd kills a silent service; 0 if it does not, or means another process."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or pid not in ("", str(os.getpid())):
        return 0.0
    return int(microseconds) / 1e6
