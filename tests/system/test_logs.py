"""What services log: JSON without a terminal, one event for each operation, with the crawl, the host and the caller.

Every line is compared with the table of docs/reference/logs.md: an event or a field that is not there fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from shoal.api.audit import OPERATIONS, AuditLog
from shoal.api.auth import create_token
from shoal.api.middleware import LimitsMiddleware
from shoal.api.routes import ROUTES
from shoal.errors import InvalidInput
from shoal.frontier import Frontier
from shoal.model import Limits, Visit
from shoal.model.crawl import OUTPUT_REFUSED, OUTPUT_UNAVAILABLE
from shoal.model.crawl_request import CrawlRequest
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.maintenance import Maintainer
from shoal.operations.scrapy_cluster import expire_now
from shoal.operations.submit import submit, to_submission
from shoal.settings import FetchSettings, FrontierSettings, Settings
from tests.api.process import ApiProcess, serve_api
from tests.servers import Server, wait_until
from tests.system.shell import LOCAL, ROOT, Shell

PAGE = (ROOT / "docs/reference/logs.md").read_text()
FIELDS = {
    row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in re.findall(r"^\| `([a-z.]+)` \| (.*?) \| ", PAGE, re.M)
}  # fmt: skip
ALWAYS = {"time", "level", "event", "message"}
TOKENS = {name: create_token(name) for name in ("admin", "submit:shop", "read", "submit")}
NAMED = {"admin": "boss", "submit:shop": "shopkeeper", "read": "reader", "submit": "submitter"}
SETTINGS = '[outputs]\nmain = "{folder}/pages.db"\n[tokens]\n' + "".join(
    f'{NAMED[role]} = "{line}"\n' for role, (_, line) in TOKENS.items()
)
SECRETS = ("hunter2", "opensesame", *(token for token, _ in TOKENS.values()))


def events(text: str) -> list[dict[str, Any]]:
    """Lines of a log, each of them one object of which the reference knows everything."""
    entries: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for entry in entries:
        assert entry.keys() >= ALWAYS
        assert entry["event"] in FIELDS
        assert entry.keys() - ALWAYS <= FIELDS[entry["event"]], entry
    return entries


def command(kind: str, store: Server) -> list[str]:
    more = {
        "serve": ["--port", "0"],
        "worker": ["--workers", "1", *LOCAL],
        "listen": [f"{store.url}/0/asked"],
    }[kind]
    return [kind, *more, "--store", store.url]


BEGINS = {"serve": "Serving redis://", "worker": "1 worker on", "listen": "Listening to redis://"}


@pytest.mark.parametrize("kind", BEGINS)
def test_a_service_logs_json_without_a_terminal_and_text_on_request(kind: str, store: Server, shell: Shell) -> None:
    # An empty variable is none.
    shell.environ["SHOAL_LOG"] = ""
    running = shell.start(*command(kind, store))
    plain = shell.start(*command(kind, store), "--log", "text")
    running.wait_for_output(BEGINS[kind])
    plain.wait_for_output(BEGINS[kind])
    result = running.end(signal.SIGTERM)
    assert result.code == 0, result.err
    names = [event["event"] for event in events(result.err)]
    begin = {"serve": "serve.started", "worker": "workers.started", "listen": "listen.started"}[kind]
    assert (names[0], names[-1]) == (begin, begin.replace("started", "stopped"))
    assert plain.end(signal.SIGTERM).err.startswith(BEGINS[kind])


STOPPED_AT_ONCE = """
import asyncio, os, signal, sys
from shoal.api import run
from shoal.settings import load
def emit(text, /, *, event, **facts):
    print(event, flush=True)
    if event == "serve.started":
        os.kill(os.getpid(), signal.SIGTERM)
asyncio.run(run(load(flags={"store.url": sys.argv[1], "api.port": 0}).settings, emit=emit))
"""


def test_a_server_can_be_stopped_as_soon_as_it_reports_that_it_is_ready(store: Server, shell: Shell) -> None:
    result = shell.start(store.url, program=("-c", STOPPED_AT_ONCE)).end()
    assert (result.code, result.out.split()) == (0, ["serve.started", "serve.open", "serve.stopped"]), result.err


@pytest.mark.parametrize("kind", BEGINS)
@pytest.mark.parametrize("chosen", ["", "json"])
def test_a_service_logs_text_on_a_terminal_unless_the_variable_overrides_it(
    kind: str, chosen: str, store: Server, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *command(kind, store)], cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=theirs,
        stdout=subprocess.DEVNULL, start_new_session=True,
        env={**environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb", "SHOAL_LOG": chosen},
    )  # fmt: skip
    os.close(theirs)
    try:
        output = b""
        # The service logs its start, so this waits for no more than that.
        while BEGINS[kind].encode() not in output:
            output += os.read(ours, 4096)
        assert output.lstrip().startswith(b"{") == (chosen == "json"), output
    finally:
        process.terminate()
        # The buffer of a terminal fills if nothing reads it.
        threading.Thread(target=_drain, args=(ours,), daemon=True).start()
        process.wait(60)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(descriptor, 4096):
            pass
    os.close(descriptor)


def test_interactive_commands_print_plain_lines_into_a_pipe(shell: Shell) -> None:
    shell.environ["SHOAL_LOG"] = ""
    running = shell.start("crawl", "http://127.0.0.1:1/", *LOCAL)
    running.wait_for_output("Press Ctrl-C to pause it.")
    assert running.end(signal.SIGINT).err.startswith("Starting crawl ")


def test_the_reason_why_a_service_does_not_start_is_one_line_of_json(shell: Shell) -> None:
    shell.environ["SHOAL_LOG"] = ""
    (event,) = events(shell.run("serve", "--host", "0.0.0.0", "--port", "0").err)
    assert (event["event"], event["level"]) == ("error", "error")
    (event,) = events(shell.run("worker", "--workers", "none").err)
    assert "none" in event["message"]


def test_a_new_token_is_shown_once_and_not_logged(shell: Shell) -> None:
    shell.environ["SHOAL_LOG"] = ""
    assert "\n[tokens]\nNAME = " in shell.run("serve", "--make-token", "admin").err


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("logged")
    with serve_api(folder, settings=SETTINGS.format(folder=folder)) as api:
        yield api
    for secret in SECRETS:
        assert secret not in api.output()


@contextlib.contextmanager
def logged(api: ApiProcess) -> Iterator[list[dict[str, Any]]]:
    """The events of the block. The maintainer logs the end of a crawl later, so that event is left out."""
    before = len(api.output())
    entries: list[dict[str, Any]] = []
    yield entries
    entries += [event for event in events(api.output()[before:]) if event["event"] != "crawl.ended"]


def ask(api: ApiProcess, role: str, method: str, path: str, body: Any = None) -> Any:
    response = api.ask(method, path, body, Authorization=f"Bearer {TOKENS[role][0]}")
    return response.json if response.raw else None


def request(name: str, **more: Any) -> dict[str, Any]:
    return {
        "seeds": ["http://root:hunter2@127.0.0.1:1/"], "name": name, "outputs": ["main"], "cookie": "opensesame",
        "headers": {"X-Key": "opensesame"}, **more,
    }  # fmt: skip


def test_every_change_of_a_crawl_is_one_event_with_its_caller(api: ApiProcess) -> None:
    who = {"who": "boss", "role": "admin", "level": "info"}
    with logged(api) as entries:
        ask(api, "admin", "POST", "/v1/crawls", request("docs", app="shop"))
        ask(api, "admin", "POST", "/v1/crawls", request("docs", app="shop"))
        for verb in ("pause", "resume", "retry"):
            ask(api, "admin", "POST", f"/v1/crawls/shop:docs/{verb}")
        ask(
            api,
            "admin",
            "POST",
            "/v1/crawls/shop:docs/seeds",
            {"seeds": ["http://127.0.0.1:1/2", "http://127.0.0.1:1/3"]},
        )
        # Reading is not logged as an operation.
        for path in ("", "/shop:docs", "/shop:docs/failed", "/none"):
            ask(api, "admin", "GET", f"/v1/crawls{path}")
        ask(api, "admin", "POST", "/v1/crawls/shop:docs/stop")
        ask(api, "admin", "DELETE", "/v1/crawls/shop:docs")
    for event in entries:
        assert event.items() >= {**who, "crawl": "shop:docs", "app": "shop"}.items(), event
    about = {"time", "message", *who, "crawl", "app"}
    assert [{name: value for name, value in event.items() if name not in about} for event in entries] == [
        {"event": "crawl.submitted", "seeds": 1, "created": True},
        {"event": "crawl.submitted", "seeds": 1, "created": False},
        {"event": "crawl.paused", "state": "paused"},
        {"event": "crawl.resumed", "state": "running"},
        {"event": "crawl.retried", "retried": 0},
        {"event": "crawl.seeded", "seeds": 2, "new": 2, "known": 0, "refused": 0},
        {"event": "crawl.stopped", "state": "stopped"},
        {"event": "crawl.deleted"},
    ]


def test_requests_of_scrapy_cluster_are_logged_under_the_same_names(api: ApiProcess) -> None:
    feed_request = {"appid": "shop", "crawlid": "old", "url": "http://127.0.0.1:1/"}
    with logged(api) as entries:
        # Its requests name no output, and the server has none called default.
        ask(api, "submit:shop", "POST", "/feed", feed_request)
        ask(api, "submit:shop", "POST", "/v1/crawls", request("shop:old"))
        ask(api, "submit:shop", "POST", "/v1/crawls", request("own"))
        for action, crawl in (("info", "old"), ("stop", "old"), ("expire", "own")):
            ask(api, "submit:shop", "POST", "/feed", {"action": action, "appid": "shop", "uuid": "1", "crawlid": crawl})
    facts = [(event["event"], event["crawl"], event["app"], event["who"], event["role"]) for event in entries]
    assert facts == [
        (event, crawl, "shop", "shopkeeper", "submit")
        for event, crawl in (
            ("request.refused", "shop:old"), ("crawl.submitted", "shop:old"), ("crawl.submitted", "shop:own"),
            ("crawl.stopped", "shop:old"), ("crawl.expired", "shop:own"),
        )
    ]  # fmt: skip
    assert entries[0]["status"] == 400


def test_a_change_of_a_host_is_logged_with_the_new_values(api: ApiProcess) -> None:
    with logged(api) as entries:
        ask(api, "admin", "PATCH", "/v1/hosts/Example.org", {"delay_seconds": 4, "blocked": "they asked"})
        ask(api, "admin", "PATCH", "/v1/hosts/example.org", {"blocked": ""})
        ask(api, "admin", "GET", "/v1/hosts/example.org")
    first, second = entries
    assert (
        first.items() >= {"event": "host.changed", "host": "example.org", "delay_seconds": 4.0, "who": "boss"}.items()
    )
    assert (first["blocked"], first["changed"]) == ("they asked", ["blocked", "delay_seconds"])
    assert "blocked" not in second


def test_a_refused_request_is_logged_with_the_id_of_its_response(api: ApiProcess) -> None:
    with logged(api) as entries:
        late = ask(api, "admin", "POST", "/v1/crawls/none/pause")
        bad = ask(api, "admin", "POST", "/v1/crawls", request("bad", seeds=["gopher://a:hunter2@127.0.0.1/"]))
        may_not = ask(api, "read", "POST", "/v1/crawls/none/stop")
        not_theirs = ask(api, "submit:shop", "GET", "/v1/hosts")
        nobody = api.ask("GET", "/v1/crawls", Authorization="Bearer opensesame").json
        assert api.ask("GET", "/v1/nothing").status == 404
    facts = [(event["status"], event["problem"], event["id"], event.get("who"), event["route"]) for event in entries]
    route = "/v1/crawls/{crawl}"
    assert facts == [
        (404, "UnknownCrawl", late["id"], "boss", f"{route}/pause"),
        (422, bad["type"].rpartition(":")[2], bad["id"], "boss", "/v1/crawls"),
        (403, "403", may_not["id"], "reader", f"{route}/stop"),
        (403, "403", not_theirs["id"], "shopkeeper", "/v1/hosts"),
        (401, "401", nobody["id"], None, "/v1/crawls"),
    ]
    assert {event["event"] for event in entries} == {"request.refused"}
    assert {event["level"] for event in entries} == {"warning"}
    assert [event.get("crawl") for event in entries] == ["none", "bad", "none", None, None]
    assert entries[-1]["address"] == "127.0.0.1"


def test_a_client_with_many_refused_requests_does_not_fill_the_log(api: ApiProcess) -> None:
    # No other test has this client: its later refusals would be left out, too.
    with logged(api) as entries:
        for _ in range(60):
            ask(api, "submit", "PATCH", "/v1/hosts/example.org", {"delay_seconds": 1})
        wait_until(
            lambda: (
                ask(api, "submit", "PATCH", "/v1/hosts/example.org", {"delay_seconds": 1})
                and "left_out" in api.output()
            ),
            "one is logged",
        )
    assert len(entries) < 60
    assert sum(event.get("left_out", 0) for event in entries) > 0


def test_an_invalid_http_request_is_logged_as_json_too(api: ApiProcess) -> None:
    with logged(api) as entries, socket.create_connection((api.host, api.port)) as line:
        line.sendall(b"\x00\x01\r\n\r\n")
        line.recv(1000)
    assert [event["logger"] for event in entries if event["event"] == "warning"] == ["uvicorn.error"]


@pytest.mark.full
def test_read_requests_that_fail_without_the_store_are_logged_too(store: Server, tmp_path: Path) -> None:
    with serve_api(tmp_path / "api", "--store", store.url) as api:
        store.kill()
        response = api.ask("GET", "/v1/crawls/docs").json
        (entry,) = [event for event in events(api.output()) if event["event"] == "request.failed"]
    assert (entry["status"], entry["problem"], entry["id"]) == (503, "StoreUnavailable", response["id"])
    assert (entry["crawl"], entry["who"]) == ("docs", "local (no authentication)")


async def test_an_internal_error_is_logged_with_its_traceback_and_answered_without_it() -> None:
    async def defective(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("inside")

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    log, sent = Log(), list[Message]()
    guarding = LimitsMiddleware(defective, local=False, on_problem=AuditLog(log.emit).log_problem)
    scope: Scope = {"type": "http", "method": "GET", "path": "/v1/crawls", "headers": [], "client": ("127.0.0.1", 1)}
    await guarding(scope, receive, send)
    ((event, facts),) = log
    assert (event, facts["status"], facts["problem"]) == ("request.failed", 500, "Defect")
    assert "KeyError: 'inside'" in str(facts["trace"])
    body = json.loads(sent[1]["body"])
    assert body["id"] == facts["id"]
    assert "inside" not in str(sent)


def test_every_route_that_changes_something_is_logged_as_an_operation() -> None:
    # Reports of IndexNow come without a token: no user is responsible for them, and they could fill the log.
    assert {route.name for route in ROUTES if route.method != "GET" and route.role is not None} == set(OPERATIONS)


class _Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(500 if "refuse" in self.path else 204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Log(list[tuple[str, dict[str, object]]]):
    def emit(self, text: str, /, *, event: str, **facts: object) -> None:
        assert facts.keys() <= FIELDS[event], (event, facts)
        for secret in SECRETS:
            assert secret not in f"{text}{facts}"
        self.append((event, facts))


async def test_a_notification_reaches_only_networks_that_its_request_was_allowed(store: Server, receiver: str) -> None:
    log = Log()
    # This process may reach the address, the server that took the request may not.
    settings = Settings(fetch=FetchSettings(allow_networks="127.0.0.0/8"))
    async with await Frontier.open(store.url) as frontier:
        maintainer = Maintainer(frontier, settings, emit=log.emit)
        host = receiver.partition("//")[2].replace("127.0.0.1", "localhost")
        for networks, event in (("", "notify.failed"), ("127.0.0.0/8,::1", "notify.sent")):
            name = f"crawl-{len(networks)}"
            request = CrawlRequest(
                seeds=("https://a.example/",), name=name, outputs=("main",), notify=f"http://{host}/"
            )
            await submit(frontier, to_submission(request, networks=networks))
            assert not (await submit(frontier, to_submission(request, networks="10.0.0.0/8"))).created, "the same crawl"
            await frontier.crawls.stop(name)
            await maintainer.check()
            await asyncio.gather(*maintainer._notifying)
            assert log[-1][0] == event
        with pytest.raises(InvalidInput, match=r"notify must not reach 127\.0\.0\.1"):
            to_submission(CrawlRequest(seeds=("https://a.example/",), notify=f"{receiver}/"))


async def test_a_maintainer_logs_the_ends_of_crawls_and_their_notifications(store: Server, receiver: str) -> None:
    log = Log()
    settings = Settings(fetch=FetchSettings(allow_networks="127.0.0.0/8"))
    async with await Frontier.open(store.url) as frontier:
        crawls = frontier.crawls
        maintainer = Maintainer(frontier, settings, emit=log.emit)

        async def begin(name: str, notify: str = "") -> None:
            policy = CrawlSpec(outputs=("main",), app="shop", notify=notify, notify_networks="127.0.0.0/8")
            await crawls.create(name, Limits(), policy.stored())
            await frontier.add(name, [Visit(url=f"http://127.0.0.1:1/{name}")])

        seen: list[tuple[str, str]] = []

        async def look() -> list[tuple[str, str]]:
            """The events of one round, each with its crawl."""
            for name in list(maintainer._known):
                maintainer.check_soon(name)
            await maintainer.check()
            await asyncio.gather(*maintainer._notifying)
            ends = [(event, str(facts["crawl"])) for event, facts in log[len(seen) :]]
            seen.extend(ends)
            return ends

        await begin("docs", f"{receiver}/?key=opensesame")
        assert await look() == []
        for why, event in ((OUTPUT_UNAVAILABLE, "output.unavailable"), (OUTPUT_REFUSED, "output.refused")):
            await crawls.pause("docs", why)
            assert await look() == [(event, "docs")]
            assert await look() == []
            await crawls.resume("docs", why)
            assert await look() == ([("output.recovered", "docs")] if why == OUTPUT_UNAVAILABLE else [])
        await crawls.stop("docs")
        assert await look() == [("crawl.ended", "docs"), ("notify.sent", "docs")]
        assert await look() == []

        await begin("deaf", f"{receiver}/refuse?key=opensesame")
        await look()
        await expire_now(frontier, "deaf")
        assert await look() == [("crawl.ended", "deaf"), ("notify.failed", "deaf")]
        for tries in (2, 3, 4, 5):
            assert await look() == [("notify.failed", "deaf")]
            about = {"crawl": "deaf", "app": "shop"}
            assert log[-1][1] == {**about, "tries": tries, "reason": "status 500", "given_up": tries == 5}
        assert await look() == []

        short = Maintainer(frontier, Settings(frontier=FrontierSettings(keep_days=1e-9)), emit=log.emit)
        await short.check()
        freed = [facts for event, facts in log if event == "crawl.deleted"]
        assert {(facts["crawl"], facts["reason"]) for facts in freed} == {("docs", "keep_days"), ("deaf", "keep_days")}


def test_a_bridge_logs_the_same_operations_with_their_source(store: Server, shell: Shell) -> None:
    shell.environ["SHOAL_LOG"] = ""
    (shell.folder / "shoal.toml").write_text('[outputs]\ndefault = "postgresql://root:hunter2@127.0.0.1:1/pages"\n')
    running = shell.start(*command("listen", store))
    running.wait_for_output("listen.started")
    own = json.dumps(request("own", app="shop", outputs=["default"]))
    action = {"appid": "shop", "uuid": "1"}
    bodies = [
        own, own, json.dumps({"action": "stop", "crawlid": "own", **action}),
        json.dumps({"action": "expire", "crawlid": "none", **action}), '{"seeds": "http://a:hunter2@127.0.0.1/"}',
    ]  # fmt: skip
    for body in bodies:
        store.ask("LPUSH", "asked", body)
    wait_until(lambda: sum("request.refused" in line for line in running.stderr_lines) == 2, f"{running.stderr_lines}")
    result = running.end(signal.SIGTERM)
    assert result.code == 0, result.err
    _, *entries, end = events(result.err)
    facts = [(event["event"], event.get("crawl"), event.get("app"), event.get("created")) for event in entries]
    assert sorted(facts, key=str) == sorted(
        [
            ("crawl.submitted", "shop:own", "shop", True), ("crawl.submitted", "shop:own", "shop", False),
            ("crawl.stopped", "shop:own", "shop", None), ("request.refused", "none", "shop", None),
            ("request.refused", None, None, None),
        ], key=str,
    )  # fmt: skip
    assert {event["source"] for event in entries} == {f"{store.url}/0/asked"}
    assert end["event"] == "listen.stopped"
    for secret in SECRETS:
        assert secret not in result.err
