"""FTP through the same interface as HTTP: its statuses, its limits, and a server that tries to redirect us."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.fetch import AddressGuard, Fetcher, Request
from shoal.parse.ftp_listing import links
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.servers import WAIT_SECONDS
from tests.site.ftp import serving_ftp
from tests.site.hostile import Connection, Hostile

MEBIBYTE = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "a dir" / "inner").mkdir(parents=True)
    (folder / "hello.txt").write_text("hello")
    (folder / "page.html").write_text("<title>A page</title>")
    (folder / "a dir" / "x.bin").write_bytes(bytes(range(256)))
    (folder / "large").write_bytes(b"x" * (2 * MEBIBYTE))
    return folder


async def test_a_file_is_fetched_as_anonymous(fetcher, folder):
    with serving_ftp(folder) as server:
        page = await fetcher.fetch(Request(ftp=True, url=server.url("/hello.txt")))
        assert (page.status, page.body) == (200, b"hello")
        assert page.header("content-type") == "text/plain"
        assert page.address == "127.0.0.1"
        assert page.bytes_received >= 5
        assert page.timings.total > 0
        assert server.logins == ["anonymous"]
        binary = await fetcher.fetch(Request(ftp=True, url=server.url("/a%20dir/x.bin")))
        assert binary.body == bytes(range(256))


async def test_a_user_and_a_password_are_sent_and_never_shown(fetcher, folder):
    with serving_ftp(folder, users={"ann": "s3cret"}) as server:
        page = await fetcher.fetch(Request(ftp=True, url=server.url("/hello.txt", user="ann:s3cret")))
        assert page.body == b"hello"
        assert server.logins == ["ann"]
        wrong = await fetcher.fetch(Request(ftp=True, url=server.url("/hello.txt", user="ann:wrong")))
        assert (wrong.status, wrong.body) == (401, b"")
        error = await failure(fetcher, server.url("/large", user="ann:s3cret"), ftp=True, body_bytes=MEBIBYTE)
        assert "s3cret" not in str(error)


@pytest.mark.parametrize("path", ["/missing.txt", "/missing/", "/missing/x", "/a%20dir"])
async def test_a_missing_file_is_404(fetcher, folder, path):
    with serving_ftp(folder) as server:
        page = await fetcher.fetch(Request(ftp=True, url=server.url(path)))
        assert (page.status, page.body, page.headers) == (404, b"", ())
        # The connection is as good as before.
        assert (await fetcher.fetch(Request(ftp=True, url=server.url("/hello.txt")))).body == b"hello"
        assert server.logins == ["anonymous"]


@pytest.mark.parametrize("without", [(), ("MLSD",), ("MLSD", "EPSV")])
async def test_a_directory_is_listed_with_any_server_features(fetcher, folder, without):
    with serving_ftp(folder, without=without) as server:
        for _ in range(2):
            page = await fetcher.fetch(Request(ftp=True, url=server.url("/")))
            assert page.status == 200
            assert page.header("content-type") == "text/ftp-dir-listing"
            names = {url.removeprefix(server.url("/")) for url in links(page.body, url=page.url)}
            assert names == {"a%20dir/", "hello.txt", "page.html", "large"}
        inner = await fetcher.fetch(Request(ftp=True, url=server.url("/a%20dir/")))
        assert {url.rpartition("dir/")[2] or url for url in links(inner.body, url=inner.url)} >= {"x.bin"}
        # A server that does not know MLSD gets that command once.
        assert server.commands.count("MLSD") == (1 if without else 3)
        assert server.logins == ["anonymous"]


async def test_the_size_limit_is_enforced(fetcher, folder):
    with serving_ftp(folder) as server:
        error = await failure(fetcher, server.url("/large"), ftp=True, body_bytes=MEBIBYTE)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        cut = await fetcher.fetch(Request(ftp=True, url=server.url("/large"), body_bytes=1000, cut=True))
        assert (cut.status, len(cut.body)) == (200, 1000)
        assert (await fetcher.fetch(Request(ftp=True, url=server.url("/large")))).body == b"x" * (2 * MEBIBYTE)


class Scripted:
    """A server that sends scripted replies, and lists the commands it got. Data has a separate port."""

    def __init__(self, replies: dict[str, str], data: Callable[[Connection], Awaitable[None]] | None = None) -> None:
        self.replies = {"USER": "331 continue", "PASS": "230 in", "PWD": '257 "/"', "TYPE": "200 ok", "QUIT": "221 bye"}
        self.replies |= replies
        self.commands: list[str] = []
        self.control = Hostile({}, greeting=self._serve_control)
        self.data = Hostile({}, greeting=data or self._empty)

    async def __aenter__(self) -> Scripted:
        await self.data.__aenter__()
        await self.control.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.control.__aexit__(None, None, None)
        await self.data.__aexit__(None, None, None)

    def url(self, path: str) -> str:
        return f"ftp://127.0.0.1:{self.control.port}{path}"

    async def _empty(self, connection: Connection) -> None:
        return

    async def _serve_control(self, connection: Connection) -> None:
        await connection.send(self.replies.get("", "220 hello").encode() + b"\r\n")
        while line := await connection.reader.readline():
            command = line.decode().split()[0].upper()
            self.commands.append(line.decode().strip())
            reply = self.replies.get(command, "502 no")
            if reply == "silence":
                await connection.until_closed()
            port = self.data.port
            reply = reply.replace("PORT", str(port)).replace("HIGH", str(port >> 8)).replace("LOW", str(port & 255))
            await connection.send(reply.encode() + b"\r\n")


async def _forever(connection: Connection) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await connection.send(b"x" * 65536)


async def test_a_file_without_end_is_stopped_at_the_limit(fetcher):
    replies = {"EPSV": "229 ok (|||PORT|)", "RETR": "150 here it comes"}
    async with Scripted(replies, _forever) as server:
        error = await failure(fetcher, server.url("/endless"), ftp=True, body_bytes=MEBIBYTE)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        await server.control.hung_up()
        await server.data.hung_up()


async def test_data_connections_go_to_the_server_itself_wherever_it_points(fetcher):
    """The address in a PASV reply is that of another machine: no connection to it is opened."""

    async def send(connection: Connection) -> None:
        await connection.send(b"data")

    with socket.create_server(("127.0.0.9", 0)) as victim:
        victim.settimeout(0.2)
        port = victim.getsockname()[1]
        elsewhere = f"227 ok (127,0,0,9,{port >> 8},{port & 255})"
        async with Scripted({"EPSV": "500 no", "PASV": elsewhere, "RETR": "150 ok"}, send) as server:
            assert (await failure(fetcher, server.url("/x"), ftp=True, timeout_seconds=5)).fault is Fault.REFUSED
        with pytest.raises(TimeoutError):
            victim.accept()
        replies = {"EPSV": "500 no", "PASV": "227 ok (10,0,0,1,HIGH,LOW)", "RETR": "150 ok\r\n226 done"}
        async with Scripted(replies, send) as server:
            assert (await fetcher.fetch(Request(ftp=True, url=server.url("/x")))).body == b"data"


@pytest.mark.parametrize("reply", ["229 ok (|||6379|)", "229 ok (|||22|)"])
async def test_a_data_connection_to_the_port_of_a_daemon_is_refused(fetcher, reply):
    async with Scripted({"EPSV": reply, "RETR": "150 ok"}) as server:
        error = await failure(fetcher, server.url("/x"), ftp=True, timeout_seconds=5)
        assert (error.fault, error.reason) == (Fault.FORBIDDEN_ADDRESS, "forbidden address: port")


async def test_addresses_are_checked_as_for_http(folder):
    strict = Fetcher(FetchSettings())
    try:
        with serving_ftp(folder) as server:
            error = await failure(strict, server.url("/hello.txt"), ftp=True)
            assert (error.fault, error.reason) == (Fault.FORBIDDEN_ADDRESS, "forbidden address: loopback")
            assert server.commands == []
    finally:
        await strict.close()


def test_the_port_of_ftp_is_for_ftp_only():
    guard = AddressGuard()
    assert guard.refuses("8.8.8.8", 21) == "port"
    assert guard.refuses("8.8.8.8", 21, ftp=True) == ""
    assert guard.refuses("8.8.8.8", 22, ftp=True) == "port"
    assert guard.refuses("10.0.0.1", 21, ftp=True) == "private"


@pytest.mark.parametrize(
    ("replies", "fault"),
    [
        ({"USER": "silence"}, Fault.TIMED_OUT),
        ({"EPSV": "229 ok (|||PORT|)", "RETR": "silence"}, Fault.TIMED_OUT),
        ({"EPSV": "229 ok (|||PORT|)", "RETR": "150 here it comes"}, Fault.TIMED_OUT),
        ({"": "HTTP/1.1 400 Bad Request"}, Fault.TIMED_OUT),
        ({"": "500 no"}, Fault.MALFORMED),
        ({"EPSV": "500 no", "PASV": "227 nonsense"}, Fault.MALFORMED),
    ],
)
async def test_a_slow_or_invalid_server_is_a_named_fault(fetcher, replies, fault):
    async with Scripted(replies, Connection.until_closed) as server:
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await failure(fetcher, server.url("/x"), ftp=True, timeout_seconds=1)).fault is fault


@pytest.mark.parametrize(
    ("replies", "status"),
    [
        ({"": "421 too many of you"}, 503),
        ({"PASS": "530 no"}, 401),
        ({"EPSV": "229 ok (|||PORT|)", "RETR": "550 no"}, 404),
        ({"EPSV": "229 ok (|||PORT|)", "RETR": "450 busy"}, 503),
    ],
)
async def test_refusals_are_statuses(fetcher, replies, status):
    async with Scripted(replies) as server:
        assert (await fetcher.fetch(Request(ftp=True, url=server.url("/x"), timeout_seconds=5))).status == status


async def test_line_breaks_cannot_be_injected_into_commands(fetcher, folder):
    with serving_ftp(folder) as server:
        error = await failure(fetcher, server.url("/x%0d%0aDELE%20hello.txt"), ftp=True)
        assert error.fault is Fault.ABORTED
        assert not any("DELE" in command for command in server.commands)


async def test_ftp_is_used_only_if_the_caller_allows_it(fetcher, folder):
    with serving_ftp(folder) as server:
        error = await failure(fetcher, server.url("/hello.txt"))
        assert (error.fault, error.reason) == (Fault.ABORTED, "bad url")
        assert server.commands == []


async def test_ftp_only_reads(fetcher, folder):
    with serving_ftp(folder) as server:
        error = await failure(fetcher, server.url("/hello.txt"), ftp=True, method="POST", body=b"x")
        assert (error.fault, error.reason) == (Fault.ABORTED, "not supported over FTP")
        assert server.commands == []
