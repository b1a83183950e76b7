"""What `make demo` runs: a crawl of a few small sites, with a worker killed in the middle of it.

Owns the sites, the worker processes and the judgement; the crawling is that of crawler.py. Everything is on 127.0.0.1
and in a temporary folder, and is gone when this ends, also by Ctrl-C. The exit code is 0 when every promise held.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import crawler  # type: ignore[import-not-found]  # its neighbour in this folder

from shoal import Frontier, Limits, errors

HOSTS = 4
PAGES_PER_HOST = 15
DELAY_SECONDS = 0.1
LEASE_SECONDS = 2.0
# Far more than the demo needs; a machine that is very busy should still see the end.
PATIENCE_SECONDS = 60.0


class Broken(Exception):
    """Something that should hold does not; the message is one sentence."""


@dataclass(frozen=True)
class Request:
    """One line of a web server's log. Times are seconds since the demo began."""

    host: str
    path: str
    worker: str
    start: float
    end: float


@dataclass
class Sites:
    """The web sites and their common log. The worker `victim` is caught while a request of its is open."""

    victim: str
    began: float = field(default_factory=time.monotonic)
    hosts: list[str] = field(default_factory=list)
    log: list[Request] = field(default_factory=list)
    caught: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)
    caught_at: tuple[str, str] = ("", "")

    def now(self) -> float:
        return time.monotonic() - self.began

    def urls(self) -> dict[str, str]:
        """Every page there is, and what it says: a tree, so a page is found through its parent alone."""
        found = {}
        for host in self.hosts:
            for page in range(PAGES_PER_HOST):
                children = [child for child in (2 * page + 1, 2 * page + 2) if child < PAGES_PER_HOST]
                links = "".join(f'<a href="/{link or ""}">{link}</a> ' for link in [*children, page // 3])
                found[f"http://{host}/{page or ''}"] = f"<h1>Page {page} of {host}</h1> {links}"
        return found

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        start = self.now()
        host, worker = handler.headers["Host"], handler.headers["User-Agent"]
        busy = sum(request.worker == self.victim for request in self.log) >= 3 and len(self.log) >= 10
        if worker == self.victim and busy and not self.caught.is_set():
            self.caught_at = (host, handler.path)
            self.caught.set()
            self.killed.wait(PATIENCE_SECONDS)
        body = self.urls().get(f"http://{host}{handler.path}")
        handler.send_response(404 if body is None else 200)
        handler.end_headers()
        # Noted before the last byte is sent: the visitor cannot have finished earlier.
        self.log.append(Request(host, handler.path, worker, start, self.now()))
        handler.wfile.write((body or "").encode())

    @contextmanager
    def served(self) -> Iterator[None]:
        sites = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                sites.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a killed worker does not read its answer

        with ExitStack() as stack:
            for _ in range(HOSTS):
                server = stack.enter_context(Server(("127.0.0.1", 0), Handler))
                threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
                stack.callback(server.shutdown)
                self.hosts.append(f"127.0.0.1:{server.server_port}")
            yield


@dataclass
class Fleet:
    """Worker processes. Each is ended by its own pid, whatever happens."""

    folder: Path
    seeds: list[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, worker: str) -> None:
        # Not in the terminal's group: Ctrl-C reaches the demo alone, which then ends its workers.
        with (self.folder / f"{worker}.err").open("wb") as err:
            self.processes[worker] = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), worker, str(self.folder), *self.seeds],
                env={**os.environ, "no_proxy": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
            )

    def kill(self, worker: str) -> None:
        process = self.processes.pop(worker)
        process.kill()
        process.wait()

    def check(self) -> bool:
        """True while a worker runs; Broken when one has failed."""
        for worker, process in self.processes.items():
            if process.poll():
                said = (self.folder / f"{worker}.err").read_text().strip().splitlines()
                raise Broken(f"{worker} failed: {said[-1] if said else f'exit code {process.returncode}'}.")
        return any(process.poll() is None for process in self.processes.values())

    def close(self) -> None:
        for worker in list(self.processes):
            self.kill(worker)


async def crawl(sites: Sites, folder: Path) -> None:
    """Two workers, one of which is killed and replaced; returns when the crawl is finished."""
    urls = sites.urls()
    seeds = [f"http://{host}/" for host in sites.hosts]
    fleet = Fleet(folder, seeds)
    server: int | None = None

    def say(text: str) -> None:
        print(f"{sites.now():6.1f} s  {text}", flush=True)

    try:
        # One shard: a worker of crawler.py makes the visits of one lease at a time, and is to get no more than one.
        opening = Frontier.open(folder=str(folder / ".shoal"), shards=1)
        async with asyncio.timeout(PATIENCE_SECONDS), await opening as frontier:
            server = frontier.shards.store.embedded_pid()
            await frontier.crawls.create("example", Limits(delay_seconds=DELAY_SECONDS))
            await frontier.add("example", seeds)
            for worker in ("worker-1", "worker-2"):
                fleet.start(worker)
            say("worker-1 and worker-2 start")
            while not sites.caught.is_set():
                if not fleet.check():
                    raise Broken(f"The crawl ended before {sites.victim} could be killed.")
                await asyncio.sleep(0.01)
            counts = await frontier.crawls.count("example")
            fleet.kill(sites.victim)
            killed = sites.now()
            sites.killed.set()
            host, path = sites.caught_at
            say(f"{sites.victim} is killed while it asks for {host}{path}: kill -9")
            say(f"{counts.stored} pages are stored, {counts.leased} leased, {counts.waiting} wait")
            fleet.start("worker-3")
            say("worker-3 starts")
            while not any(request.host == host and request.worker != sites.victim for request in later(sites, killed)):
                fleet.check()
                await asyncio.sleep(0.01)
            heir = next(r for r in later(sites, killed) if r.host == host and r.worker != sites.victim)
            say(f"{heir.worker} goes on with {host}: the lease of {LEASE_SECONDS:g} s is over")
            while not await frontier.crawls.finish("example"):
                if not fleet.check():
                    raise Broken("The workers have ended, but the crawl is not finished.")
                await asyncio.sleep(0.05)
            counts = await frontier.crawls.count("example")
            say("the crawl is finished\n")
            if (counts.admitted, counts.stored) != (len(urls), len(urls)):
                raise Broken(f"{len(urls)} pages exist, but the frontier admitted {counts.admitted}: {counts}.")
    except TimeoutError:
        raise Broken(f"The crawl is not finished after {PATIENCE_SECONDS:g} s.") from None
    finally:
        sites.killed.set()
        fleet.close()
        wait_for_end(server)


def wait_for_end(pid: int | None) -> None:
    """The store stops when nobody uses it any more; its folder is removed only then."""
    if pid is not None:
        with suppress(ProcessLookupError):
            for _ in range(500):
                os.kill(pid, 0)
                time.sleep(0.01)


def later(sites: Sites, moment: float) -> list[Request]:
    return [request for request in list(sites.log) if request.start > moment]


def report(sites: Sites, folder: Path) -> None:
    """Say what the web servers and the results show, and refuse what does not hold."""
    urls = sites.urls()
    files = {path.name: path.read_text() for path in folder.iterdir() if path.name.startswith("http")}
    if files != {quote(url, ""): body for url, body in urls.items()}:
        raise Broken(f"{len(urls)} pages exist, but {len(files)} are stored or some of them are wrong.")
    asked = [f"http://{request.host}{request.path}" for request in sites.log]
    if set(asked) != set(urls):
        raise Broken(f"{len(set(urls) - set(asked))} pages were never asked for.")
    again = "".join(sites.caught_at)
    heirs = [r.worker for r in sites.log if f"{r.host}{r.path}" == again and r.worker != sites.victim]
    if len(heirs) != 1:
        raise Broken(f"{again}, which {sites.victim} was asking for, was asked for again {len(heirs)} times.")
    print(f"{len(urls)} pages exist, {len(files)} are stored, each once.")
    print(f"{len(asked)} requests: what {sites.victim} asked for last was asked for again by {heirs[0]}.\n")
    print("host               requests   open at once   smallest gap    delay")
    for host in sites.hosts:
        requests = sorted((r for r in sites.log if r.host == host), key=lambda request: request.start)
        gap = min(late.start - early.end for early, late in pairwise(requests))
        most = max(sum(r.start <= one.start < r.end for r in requests) for one in requests)
        print(f"{host:<18} {len(requests):>8}   {most:>12}   {gap:>10.3f} s  {DELAY_SECONDS:>5.3f} s")
        if gap < DELAY_SECONDS or most > 1:
            raise Broken(f"{host} was asked {gap:.3f} s after the request before, with {most} open at once.")
    print("\nEvery page was stored once, and no host was asked too soon.")


async def work(worker: str, folder: str, *seeds: str) -> None:
    """A worker process: the crawler, under a name that the web servers can see."""
    os.chdir(folder)
    crawler.web.addheaders = [("User-Agent", worker)]
    while True:
        try:
            return await crawler.crawl(*seeds, worker=worker, lease_seconds=LEASE_SECONDS)
        except errors.LeaseLost:
            continue  # a busy machine: the visits of that lease are made again


def main() -> int:
    # A shell that starts it in the background lets it ignore SIGINT; both signals are to end it in order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sites = Sites(victim="worker-1")
    try:
        with tempfile.TemporaryDirectory(prefix="shoal-demo-") as name, sites.served():
            folder = Path(name)
            print(
                f"Shoal crawls {HOSTS} sites of {PAGES_PER_HOST} pages, with {DELAY_SECONDS:g} s between two requests"
            )
            print("to a host. Servers, store and workers run on this machine only.\n")
            asyncio.run(crawl(sites, folder))
            report(sites, folder)
        print(f"It took {sites.now():.1f} s. The temporary folder with the pages is removed.")
    except (Broken, errors.ShoalError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything it started is ended and removed.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(*sys.argv[1:]))
    else:
        sys.exit(main())
