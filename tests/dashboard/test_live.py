"""Live updates: one rendering for all browsers with the same page, and only what has changed is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from shoal.api.dashboard import live
from shoal.api.dashboard.live import LiveUpdates
from shoal.errors import StoreUnavailable


async def _allowed() -> bool:
    return True


class Page:
    """A page whose parts a test sets, and which counts how often it is rendered."""

    def __init__(self) -> None:
        self.parts = {"a": "1", "b": "1"}
        self.rendered = 0
        self.error: Exception | None = None

    async def render(self) -> dict[str, str]:
        self.rendered += 1
        if self.error is not None:
            raise self.error
        return dict(self.parts)


async def event(stream: AsyncIterator[bytes]) -> dict[str, object]:
    """The next event that is not a comment or an instruction."""
    async with asyncio.timeout(30):
        async for raw in stream:
            if raw.startswith(b"event: parts\n"):
                data: dict[str, object] = json.loads(raw.partition(b"data: ")[2])
                return data
    raise AssertionError("the stream has ended")


async def test_a_hundred_browsers_share_one_rendered_page() -> None:
    updates, page = LiveUpdates(asyncio.Event()), Page()
    streams = [updates.stream("key", page.render, _allowed) for _ in range(100)]
    first = await asyncio.gather(*map(event, streams))
    assert first == [{"parts": {"a": "1", "b": "1"}, "trouble": ""}] * 100
    assert updates.viewers == 100
    before = page.rendered
    page.parts["b"] = "2"
    second = await asyncio.gather(*map(event, streams))
    # Only what has changed, after one or two rounds.
    assert second == [{"parts": {"b": "2"}, "trouble": ""}] * 100
    assert page.rendered - before <= 2
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]
    assert updates.viewers == 0


async def test_users_with_other_permissions_get_a_separate_rendering() -> None:
    updates, admin, reader = LiveUpdates(asyncio.Event()), Page(), Page()
    admin.parts["a"] = "secret"
    stream = updates.stream(("/", "admin"), admin.render, _allowed)
    other = updates.stream(("/", "read"), reader.render, _allowed)
    assert (await event(stream))["parts"] == {"a": "secret", "b": "1"}
    assert (await event(other))["parts"] == {"a": "1", "b": "1"}


async def test_a_browser_that_connects_late_gets_everything() -> None:
    updates, page = LiveUpdates(asyncio.Event()), Page()
    first = updates.stream("key", page.render, _allowed)
    await event(first)
    page.parts["b"] = "2"
    await event(first)
    late = updates.stream("key", page.render, _allowed)
    assert (await event(late))["parts"] == {"a": "1", "b": "2"}


async def test_an_unavailable_store_is_reported_and_its_return_too() -> None:
    updates, page = LiveUpdates(asyncio.Event()), Page()
    stream = updates.stream("key", page.render, _allowed)
    await event(stream)
    page.error = StoreUnavailable("The store does not respond.")
    assert await event(stream) == {"parts": {}, "trouble": "The store does not respond."}
    page.error = None
    assert await event(stream) == {"parts": {}, "trouble": ""}


async def test_a_stream_ends_with_its_session_and_with_the_server() -> None:
    stopping, page = asyncio.Event(), Page()
    updates = LiveUpdates(stopping)
    signed_in = [True]

    async def still_signed_in() -> bool:
        return signed_in[0]

    own = updates.stream("own", page.render, still_signed_in)
    other = updates.stream("other", page.render, _allowed)
    await event(own)
    await event(other)
    signed_in[0] = False
    page.parts["a"] = "2"
    assert [raw async for raw in own] == []
    await event(other)
    stopping.set()
    async with asyncio.timeout(30):
        assert [raw async for raw in other] == []


async def test_an_internal_error_ends_the_streams_and_the_next_one_starts_again() -> None:
    updates, page = LiveUpdates(asyncio.Event()), Page()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    stream = updates.stream("key", page.render, _allowed)
    await event(stream)
    page.error = ValueError("a defect")
    assert "cannot be updated" in str((await event(stream))["trouble"])
    async with asyncio.timeout(30):
        assert [raw async for raw in stream] == []
    page.error = None
    assert (await event(updates.stream("key", page.render, _allowed)))["parts"] == page.parts


async def test_nothing_is_rendered_without_a_viewer() -> None:
    updates, page = LiveUpdates(asyncio.Event()), Page()
    stream = updates.stream("key", page.render, _allowed)
    await event(stream)
    task = updates._channels["key"].task
    assert task is not None
    await stream.aclose()  # type: ignore[attr-defined]
    await task
    before = page.rendered
    await asyncio.sleep(1.5)
    assert page.rendered == before


async def test_browsers_are_sent_an_event_one_after_the_other() -> None:
    """A request of the API comes between two of them, not after all."""
    updates, page = LiveUpdates(asyncio.Event()), Page()
    streams = [updates.stream("key", page.render, _allowed) for _ in range(20)]
    await asyncio.gather(*map(event, streams))
    page.parts["b"] = "2"
    tasks = [asyncio.create_task(event(stream)) for stream in streams]
    _, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert waiting
    await asyncio.gather(*tasks)


async def test_a_browser_that_has_nothing_new_hears_that_the_server_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_KEEPALIVE_SECONDS", 0.5)
    stream = LiveUpdates(asyncio.Event()).stream("key", Page().render, _allowed)
    await event(stream)
    async with asyncio.timeout(30):
        assert await anext(stream) == b": still here\n\n"
