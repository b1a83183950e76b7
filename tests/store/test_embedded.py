"""The embedded store: one server per folder, for as long as a process uses it, through every kind of crash."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.errors import StoreError, StoreRefused, StoreUnavailable
from shoal.store import Script, Store
from shoal.store.embedded import Embedded, find_server
from tests.servers import WAIT_SECONDS, alive, redis_server, wait_until

pytestmark = pytest.mark.chaos
ADD = Script("add", "return redis.call('SADD', KEYS[1], ARGV[1])")
CLIENT = """
import asyncio, sys
from shoal.store import Store
async def main():
    store = await Store.open(folder=sys.argv[1])
    print(store.embedded_pid(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await store.close()
asyncio.run(main())
"""


class Client:
    """Another Shoal process on the folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def server_pid(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Callable[[], Client]]:
    started: list[Client] = []

    def start() -> Client:
        started.append(Client(tmp_path))
        return started[-1]

    yield start
    for client in started:
        client.kill()


def supervisor_pid(folder: Path) -> int:
    """0 in the moment between two of them."""
    return int((folder / "store/keeper.lock").read_text() or 0)


async def test_the_first_store_starts_a_server_and_the_last_one_stops_it(tmp_path: Path) -> None:
    first = await Store.open(folder=tmp_path)
    assert (first.kind, first.durable, first.replicas) == ("embedded", True, 0)
    pid = first.embedded_pid()
    assert pid is not None
    second = await Store.open(folder=tmp_path)
    assert second.embedded_pid() == pid
    await first.call(ADD, "k", [1])
    assert await second.call(ADD, "k", [1]) == 0
    await first.close()
    await asyncio.sleep(0.1)
    assert alive(pid)
    await second.close()
    wait_until(lambda: not alive(pid), "the server is gone")
    async with await Store.open(folder=tmp_path) as again:
        assert again.embedded_pid() != pid
        assert await again.call(ADD, "k", [1]) == 0


async def test_the_folder_is_private_and_the_server_prints_nothing_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with await Store.open(folder=tmp_path) as store:
        assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "store/socket").stat().st_mode) == 0o700
        assert os.getsid(store.embedded_pid() or 0) != os.getsid(0)
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        assert 0 < int((await store.command("CONFIG", "GET", "maxmemory"))[1]) <= half
    assert capfd.readouterr() == ("", "")
    assert "Ready to accept connections" in (tmp_path / "store/server.log").read_text()


async def test_maxmemory_is_set_as_requested(tmp_path: Path) -> None:
    async with await Store.open(folder=tmp_path, maxmemory="64mb") as store:
        assert (await store.command("CONFIG", "GET", "maxmemory"))[1] == b"67108864"


def test_eight_processes_at_once_start_one_server(tmp_path: Path, clients: Callable[[], Client]) -> None:
    eight = [clients() for _ in range(8)]
    pids = {client.server_pid() for client in eight}
    assert len(pids) == 1
    for client in eight[1:]:
        client.leave()
    (pid,) = pids
    assert alive(pid)
    eight[0].leave()
    wait_until(lambda: not alive(pid), "the server is gone")
    assert (tmp_path / "store/server.log").read_text().count("Ready to accept") == 1


def test_the_server_ends_when_its_last_client_is_killed(tmp_path: Path, clients: Callable[[], Client]) -> None:
    client = clients()
    pid = client.server_pid()
    supervisor = supervisor_pid(tmp_path)
    client.kill()
    wait_until(lambda: not alive(pid) and not alive(supervisor), "server and supervisor are gone")


async def test_clients_that_come_and_go_never_miss_the_server(tmp_path: Path) -> None:
    async def visit(number: int) -> None:
        for turn in range(5):
            async with await Store.open(folder=tmp_path) as store:
                assert await store.call(ADD, "visits", [f"{number}.{turn}"]) == 1
            await asyncio.sleep(0.01 * number)

    await asyncio.gather(*(visit(number) for number in range(4)))
    async with await Store.open(folder=tmp_path) as store:
        assert await store.command("SCARD", "visits") == 20


async def test_a_killed_server_restarts_with_all_confirmed_writes(tmp_path: Path) -> None:
    async with await Store.open(folder=tmp_path) as store:
        answered: list[int] = []

        async def work(part: int) -> None:
            for number in range(part * 1000, part * 1000 + 100):
                await store.call(ADD, "k", [number])
                answered.append(number)
                await asyncio.sleep(0.005)

        working = [asyncio.create_task(work(part)) for part in range(4)]
        for _ in range(3):
            await asyncio.sleep(0.2)
            os.kill(store.embedded_pid() or 0, signal.SIGKILL)
            await store.command("PING")
        await asyncio.gather(*working)
        assert len(answered) == 400
        assert {int(member) for member in await store.command("SMEMBERS", "k")} == set(answered)


async def test_a_killed_embedded_supervisor_is_replaced_and_its_server_keeps_running(tmp_path: Path) -> None:
    store = await Store.open(folder=tmp_path)
    pid, supervisor = store.embedded_pid(), supervisor_pid(tmp_path)
    assert pid is not None
    os.kill(supervisor, signal.SIGKILL)
    await asyncio.to_thread(
        wait_until, lambda: supervisor_pid(tmp_path) not in (0, supervisor), "another supervisor is there"
    )
    assert alive(pid)
    assert await store.command("PING") == b"PONG"
    await store.close()
    wait_until(lambda: not alive(pid), "the adopted server is stopped")


async def test_a_killed_embedded_supervisor_and_its_server_are_both_restarted(tmp_path: Path) -> None:
    async with await Store.open(folder=tmp_path) as store:
        await store.call(ADD, "k", [1])
        os.kill(supervisor_pid(tmp_path), signal.SIGKILL)
        os.kill(store.embedded_pid() or 0, signal.SIGKILL)
        assert await store.call(ADD, "k", [1]) == 0


async def test_closing_the_store_without_an_embedded_supervisor_stops_the_server_too(tmp_path: Path) -> None:
    store = await Store.open(folder=tmp_path)
    pid = store.embedded_pid()
    assert pid is not None
    supervisor = supervisor_pid(tmp_path)
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not alive(supervisor), "the supervisor is gone")
    await store.close()
    wait_until(lambda: not alive(pid), "the server is gone")


async def test_files_of_a_killed_run_do_not_prevent_a_start(tmp_path: Path) -> None:
    store = await Store.open(folder=tmp_path)
    pid, supervisor = store.embedded_pid() or 0, supervisor_pid(tmp_path)
    await store.call(ADD, "k", [1])
    store._embedded._watch.cancel()  # type: ignore[union-attr]  # this process plays dead
    os.kill(supervisor, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the server is gone")
    assert (tmp_path / "store/socket").is_socket()
    async with await Store.open(folder=tmp_path) as again:
        assert await again.call(ADD, "k", [1]) == 0
    await store.close()


@pytest.mark.parametrize("name", ["long" * 40, 'spaces and "quotes" \\ é'])
async def test_any_folder_name_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / name
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with await Store.open(folder=folder) as store:
        await store.call(ADD, "k", [1])
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "elsewhere"))
        async with await Store.open(folder=folder) as other:  # finds it although it would have put it elsewhere
            assert other.embedded_pid() == store.embedded_pid()
        os.kill(store.embedded_pid() or 0, signal.SIGKILL)
        assert await store.call(ADD, "k", [1]) == 0


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket, however long pytest's own paths are."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


async def test_the_private_directory_of_a_socket_is_removed_with_the_server(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, first, second = tmp_path / ("long" * 40), short / "first", short / "second"
    for place in (first, second):
        place.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(first))
    store = await Store.open(folder=folder)
    supervisor = supervisor_pid(folder)
    assert len(list(first.iterdir())) == 1
    # Another supervisor, in another environment, removes the directory of the first one's server too.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(second))
    os.kill(supervisor, signal.SIGKILL)
    await asyncio.to_thread(
        wait_until, lambda: supervisor_pid(folder) not in (0, supervisor), "another supervisor is there"
    )
    assert len(list(second.iterdir())) == 1
    await store.close()
    wait_until(lambda: not list(first.iterdir()) and not list(second.iterdir()), "both directories are gone")


async def test_the_server_of_a_copied_folder_does_not_use_the_socket_of_the_original(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    original, copy = tmp_path / ("long" * 40), tmp_path / ("copy" * 40)
    async with await Store.open(folder=original) as store:
        shutil.copytree(original / "store", copy / "store", symlinks=True)
        embedded = Embedded(copy)
        await embedded.join(5)
        await embedded._ensure_supervisor()
        await asyncio.to_thread(wait_until, lambda: len(list(short.iterdir())) == 2, "the copy has a server")
        await embedded.leave()
        await asyncio.to_thread(wait_until, lambda: len(list(short.iterdir())) == 1, "the server of the copy is gone")
        async with await Store.open(folder=original) as again:
            assert again.embedded_pid() == store.embedded_pid()


async def test_a_relative_folder_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await Store.open(folder="here") as store:
        monkeypatch.chdir("/")
        os.kill(store.embedded_pid() or 0, signal.SIGKILL)
        assert await store.command("PING") == b"PONG"


async def test_redis_server_can_replace_the_bundled_server(tmp_path: Path) -> None:
    async with await Store.open(folder=tmp_path, server=redis_server()) as store:
        assert store.durable
        await store.call(ADD, "k", [1])
        os.kill(store.embedded_pid() or 0, signal.SIGKILL)
        assert await store.call(ADD, "k", [1]) == 0
        info = await store.command("INFO", "server")
        assert b"redis_version:" in info
        assert b"valkey" not in info


async def _failure(error: type[StoreError], folder: Path, *, server: str = "", timeout_seconds: float = 5) -> str:
    with pytest.raises(error) as caught:
        async with asyncio.timeout(WAIT_SECONDS):
            await Store.open(folder=folder, server=server, timeout_seconds=timeout_seconds)
    return str(caught.value)


async def test_an_unusable_folder_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "below a file" in await _failure(StoreRefused, tmp_path / "file")
    (tmp_path / "store").write_text("x")
    assert "is a file" in await _failure(StoreRefused, tmp_path)
    assert "cannot be written" in await _failure(StoreRefused, Path("/proc/shoal"))


async def test_a_program_that_is_not_a_server_is_reported_by_name(tmp_path: Path) -> None:
    assert "does not exist" in await _failure(StoreRefused, tmp_path, server="/no/such/server")
    (tmp_path / "plain").write_text("x")
    assert "is not executable" in await _failure(StoreRefused, tmp_path, server=str(tmp_path / "plain"))
    assert "is not a valkey-server" in await _failure(StoreRefused, tmp_path, server="true")
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0 malloc=x bits=64 build=0'\n")
    old.chmod(0o755)
    assert "too old" in await _failure(StoreRefused, tmp_path, server=str(old))


async def test_a_damaged_data_file_is_reported_as_the_reason(tmp_path: Path) -> None:
    async with await Store.open(folder=tmp_path) as store:
        for number in range(50):
            await store.call(ADD, "k", [number])
        pid = store.embedded_pid() or 0
    wait_until(lambda: not alive(pid), "the server is gone")
    (data,) = (tmp_path / "store/appendonlydir").glob("*.incr.aof")
    whole = data.read_bytes()
    data.write_bytes(whole[:200] + b"garbage\r\n" + whole[200:])
    # It does not wait until its patience ends.
    text = await _failure(StoreUnavailable, tmp_path, timeout_seconds=10 * WAIT_SECONDS)
    assert "cannot start" in text
    assert "Bad file format" in text
    assert "server.log" in text
    data.write_bytes(whole)
    async with await Store.open(folder=tmp_path) as store:
        assert await store.command("SCARD", "k") == 50


async def test_a_server_that_keeps_failing_is_restarted_with_pauses(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    failing = tmp_path / "failing"
    failing.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then exec {find_server()} --version; fi\n'
        f"echo x >> {starts}\necho '1:M 01 Jan 2025 00:00:00.000 # No space left, says this test'\nexit 1\n"
    )
    failing.chmod(0o755)
    embedded = Embedded(tmp_path, server=str(failing))
    await embedded.join(5)
    with pytest.raises(Exception, match="says this test"):
        await embedded.ready()
    await asyncio.sleep(2.5)
    assert starts.read_text().count("x") <= 6
    await embedded.leave()
