"""Faults that a client handles: a server that restarts, a server that is not an API, an invalid token."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import AsyncClient, Client
from shoal.errors import InvalidInput, ShoalError
from tests.api.process import serve_api
from tests.servers import free_port, wait_until
from tests.system.shell import Shell


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that sends the same response to every request; yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_waiting_continues_when_the_server_restarts(tmp_path: Path) -> None:
    port = free_port()
    where = ("--folder", tmp_path / "store", "--port", port)

    async def wait() -> list[str]:
        async with AsyncClient(f"http://127.0.0.1:{port}") as client, asyncio.TaskGroup() as tasks:
            waits = [
                tasks.create_task(client.wait("long", timeout_seconds=60)),
                tasks.create_task(asyncio.to_thread(Client(client._client.shown).wait, "long")),
            ]
        return [task.result()["state"] for task in waits]

    states: list[str] = []
    with serve_api(tmp_path / "first", *where) as api:
        api.client.submit(seeds=["http://example.org/"], name="long", outputs=["main"], spider="nobody")
        waiting = threading.Thread(target=lambda: states.extend(asyncio.run(wait())))
        waiting.start()
        wait_until(lambda: "shoal_api_streams 2.0" in api.ask("GET", "/metrics").raw.decode(), "both watch")
    with serve_api(tmp_path / "second", *where) as api:
        api.client.stop("long")
        waiting.join(60)
    assert states == ["stopped", "stopped"]


def test_waiting_with_asyncio_ends_at_its_timeout(tmp_path: Path) -> None:
    async def wait(url: str) -> None:
        async with AsyncClient(url) as client:
            with pytest.raises(TimeoutError, match="did not end"):
                await client.wait("long", timeout_seconds=0.1)

    with serve_api(tmp_path) as api:
        api.client.submit(seeds=["http://example.org/"], name="long", outputs=["main"], spider="nobody")
        asyncio.run(wait(api.url))


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>It works!"), (200, b"[]"), (200, b'{"hello": 1}'), (302, b""), (404, b"no")]
)
def test_a_server_that_is_not_a_shoal_api_is_reported_as_such(status: int, body: bytes, shell: Shell) -> None:
    with answering(status, body) as url:
        with pytest.raises(ShoalError, match=r"not a Shoal API|without an error description") as refused:
            list(Client(url).crawls())
        assert type(refused.value) is ShoalError
        result = shell.run("crawls", "--store", url)
        assert result.code == 1
        assert "not a Shoal API" in result.err or "without an error description" in result.err
        assert "defect" not in result.err
        assert "bug" not in result.err


def test_an_invalid_token_or_url_is_refused_without_showing_it() -> None:
    for token in ("shoal_a\nX-Evil: 1", "shoal_a b", "shoal_ä"):
        with pytest.raises(InvalidInput, match="token") as refused:
            Client("http://127.0.0.1:1", token=token)
        assert "shoal_" not in str(refused.value)
    with pytest.raises(InvalidInput, match="port") as refused:
        Client("http://me:hush@127.0.0.1:99999")
    assert "hush" not in str(refused.value)


def test_a_line_break_after_a_token_is_ignored() -> None:
    with answering(200, b'{"workers": 1}') as url:
        assert Client(url, token="shoal_a\n").stats() == {"workers": 1}


def test_responses_cannot_send_control_characters_to_the_terminal(shell: Shell) -> None:
    with answering(200, json.dumps({"id": "a\x1b[2J\x9b31m", "created": True}).encode()) as url:
        result = shell.run("submit", "http://example.org/", "--store", url)
    assert result.code == 0, result.err
    assert result.out == "a\\x1b[2J\\x9b31m\n"
