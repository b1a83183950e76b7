"""Live updates: while browsers show a page, it is rendered about once a second, and what has changed is sent to them.

Browsers with the same page and the same permissions share one rendering, so a hundred open dashboards cost the store
about as much as one. A page that takes long to render is rendered less often.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

import msgspec

from shoal.api.problem_details import RequestRefused, problem_of
from shoal.errors import ShoalError

_ROUND_SECONDS = 1.0
# At most this part of the time goes into rendering one page.
_SHARE = 0.2
_KEEPALIVE_SECONDS = 15.0
# An event is sent to many browsers over this time, at most one a few milliseconds.
_SPREAD_SECONDS, _SEND_SECONDS = 0.5, 0.005
MAX_STREAMS = 500

Allowed = Callable[[], Awaitable[bool]]
Render = Callable[[], Awaitable[dict[str, str]]]


class _Channel:
    """One page as several browsers see it."""

    def __init__(self) -> None:
        self.viewers = 0
        self.version = 0
        # By name of the part: the version that changed it, and its HTML.
        self.parts: dict[str, tuple[int, str]] = {}
        self.trouble = ""
        # Renders it while anybody looks.
        self.task: asyncio.Task[None] | None = None
        self.over = False
        self.changed = asyncio.Condition()
        # The last event, for those who have all before it: most browsers have, so it is encoded once.
        self._event = b""

    def event_after(self, seen: int) -> bytes:
        """What has changed since a version, as an event."""
        if seen == self.version - 1 and self._event:
            return self._event
        parts = {name: html for name, (version, html) in self.parts.items() if version > seen}
        event = b"event: parts\ndata: " + msgspec.json.encode({"parts": parts, "trouble": self.trouble}) + b"\n\n"
        if seen == self.version - 1:
            self._event = event
        return event

    async def publish(self, parts: dict[str, str], trouble: str = "") -> None:
        changes = {name: html for name, html in parts.items() if self.parts.get(name, (0, ""))[1] != html}
        if not changes and trouble == self.trouble:
            return
        async with self.changed:
            self.version += 1
            self.trouble = trouble
            self._event = b""
            self.parts.update((name, (self.version, html)) for name, html in changes.items())
            self.changed.notify_all()


class LiveUpdates:
    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._channels: dict[Hashable, _Channel] = {}
        self.viewers = 0

    async def stream(self, key: Hashable, render: Render, allowed: Allowed) -> AsyncIterator[bytes]:
        """Events of one browser: `parts` with what has changed. Ends when `allowed` is false or the server stops."""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel()
        channel.viewers += 1
        self.viewers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._run(key, channel, render))
        seen = 0
        try:
            # Browsers wait so long before they connect again.
            yield b"retry: 2000\n\n"
            while not self._stopping.is_set() and await allowed():
                if channel.version > seen:
                    if seen:
                        # Not all at once: a request of the API would have to wait for all of them.
                        await asyncio.sleep(random.uniform(0.0, min(_SPREAD_SECONDS, self.viewers * _SEND_SECONDS)))
                    event = channel.event_after(seen)
                    seen = channel.version
                    yield event
                    continue
                if channel.over:
                    return
                try:
                    async with asyncio.timeout(_KEEPALIVE_SECONDS), channel.changed:
                        if channel.version == seen and not channel.over:
                            await channel.changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            channel.viewers -= 1
            self.viewers -= 1

    async def _run(self, key: Hashable, channel: _Channel, render: Render) -> None:
        """Render until the last viewer has left."""
        try:
            while channel.viewers and not self._stopping.is_set():
                started = time.monotonic()
                try:
                    await channel.publish(await render())
                except (ShoalError, RequestRefused) as error:
                    await channel.publish({}, problem_of(error)[0].detail)
                except Exception:
                    await channel.publish({}, "This page cannot be updated; the server's log has the reason.")
                    raise
                took = time.monotonic() - started
                try:
                    await asyncio.wait_for(self._stopping.wait(), max(_ROUND_SECONDS, took / _SHARE - took))
                except TimeoutError:
                    continue
        finally:
            if self._channels.get(key) is channel:
                del self._channels[key]
            async with channel.changed:
                channel.over = True
                channel.changed.notify_all()
