"""Live updates: while browsers show a page, it is rendered about once a second, and the changes are sent to them.

Browsers with the same page and the same permissions share one rendering, so a hundred open dashboards cost the store
about as much as one. A page that takes long to render is rendered less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

import msgspec

from shoal.api.problem_details import RequestRefused, problem_of
from shoal.errors import ShoalError

_ROUND_SECONDS = 1.0
# At most this share of the time is used to render one page.
_SHARE = 0.2
_KEEPALIVE_SECONDS = 15.0
# An event is sent to one browser every few milliseconds, and to several at once if it would take longer than this.
_SPREAD_SECONDS, _SEND_SECONDS = 0.5, 0.005
MAX_STREAMS = 500

Allowed = Callable[[], Awaitable[bool]]
Render = Callable[[], Awaitable[dict[str, str]]]


class _Viewer:
    """One browser: the version that it has, and the future that it waits for."""

    def __init__(self) -> None:
        self.seen = 0
        self._waiting: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self) -> bool:
        """Return False if an event is still being sent: the viewer then looks for the next version by itself."""
        if self._waiting is None or self._waiting.done():
            return False
        self._waiting.set_result(None)
        return True


class _Channel:
    """One page as several browsers see it."""

    def __init__(self) -> None:
        self.viewers: dict[_Viewer, None] = {}
        self.version = 0
        # By name of the part: the version that changed it, and its HTML.
        self.parts: dict[str, tuple[int, str]] = {}
        self.trouble = ""
        # Renders the page while a browser shows it.
        self.task: asyncio.Task[None] | None = None
        self.closed = False
        # The last event, for browsers that have all earlier ones. Most have them, so it is encoded only once.
        self._event = b""

    def event_after(self, seen: int) -> bytes:
        """Return the event with the parts that have changed since a version."""
        if seen == self.version - 1 and self._event:
            return self._event
        parts = {name: html for name, (version, html) in self.parts.items() if version > seen}
        event = b"event: parts\ndata: " + msgspec.json.encode({"parts": parts, "trouble": self.trouble}) + b"\n\n"
        if seen == self.version - 1:
            self._event = event
        return event

    def publish(self, parts: dict[str, str], trouble: str = "") -> bool:
        """Make a new version, if anything has changed."""
        changes = {name: html for name, html in parts.items() if self.parts.get(name, (0, ""))[1] != html}
        if not changes and trouble == self.trouble:
            return False
        self.version += 1
        self.trouble = trouble
        self._event = b""
        self.parts.update((name, (self.version, html)) for name, html in changes.items())
        return True

    def close(self) -> None:
        self.closed = True
        for viewer in self.viewers:
            viewer.wake()


class LiveUpdates:
    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._channels: dict[Hashable, _Channel] = {}
        self.viewers = 0

    async def stream(self, key: Hashable, render: Render, allowed: Allowed) -> AsyncIterator[bytes]:
        """Yield events for one browser: `parts` with the changes. Ends when `allowed` is false or the server stops."""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel()
        viewer = _Viewer()
        channel.viewers[viewer] = None
        self.viewers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._run(key, channel, render))
        try:
            # Browsers wait this many milliseconds before they reconnect.
            yield b"retry: 2000\n\n"
            while not self._stopping.is_set() and await allowed():
                if channel.version > viewer.seen:
                    event = channel.event_after(viewer.seen)
                    viewer.seen = channel.version
                    yield event
                elif channel.closed:
                    return
                else:
                    await viewer.wait()
                    if channel.version == viewer.seen and not channel.closed:
                        yield b": still here\n\n"
        finally:
            del channel.viewers[viewer]
            self.viewers -= 1

    async def _run(self, key: Hashable, channel: _Channel, render: Render) -> None:
        """Render until the last viewer has left."""
        silent_since = time.monotonic()
        try:
            while channel.viewers and not self._stopping.is_set():
                started = time.monotonic()
                try:
                    changed = channel.publish(await render())
                except (ShoalError, RequestRefused) as error:
                    changed = channel.publish({}, problem_of(error)[0].detail)
                except Exception:
                    channel.publish({}, "This page cannot be updated; the server's log has the reason.")
                    raise
                rendered = time.monotonic()
                took = rendered - started
                if changed or rendered - silent_since > _KEEPALIVE_SECONDS:
                    silent_since = rendered
                    await self._wake_viewers(channel)
                pause = rendered + max(_ROUND_SECONDS, took / _SHARE - took) - time.monotonic()
                try:
                    await asyncio.wait_for(self._stopping.wait(), max(0.0, pause))
                except TimeoutError:
                    continue
        finally:
            if self._channels.get(key) is channel:
                del self._channels[key]
            channel.close()

    async def _wake_viewers(self, channel: _Channel) -> None:
        """Wake viewers one after the other, so that a request of the API waits for one send and not for a hundred."""
        at_once = max(1, round(len(channel.viewers) * _SEND_SECONDS / _SPREAD_SECONDS))
        woken = 0
        for viewer in list(channel.viewers):
            if viewer.wake():
                woken += 1
                if woken % at_once == 0 and not self._stopping.is_set():
                    await asyncio.sleep(_SEND_SECONDS)
