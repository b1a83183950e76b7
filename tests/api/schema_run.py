"""`make schema`: schemathesis over the whole API, once with each role, for SECONDS altogether.

    python -m tests.api.schema_run [SECONDS [ROLE...]]

Two servers have one store and one worker: one without tokens, where every caller is admin, and one with a token of
each role. Every phase of schemathesis is used: examples, coverage of the schema, random cases, sequences of calls.
The worker and the webhooks have a proxy on this machine that responds for the whole web, so nothing leaves it. Printed
are cases, responses by status code, and failures; the full text of each is in FOLDER. The exit code is 1 after a
failure or a defect in the log of a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from shoal.api.auth import create_token
from tests.api.process import ROOT, ApiProcess, serve_api
from tests.api.schema_hooks import COUNTS
from tests.servers import Server, server

FOLDER = Path("build/schema")
# `local`: the server has no tokens. `none`: it has, and the caller has none.
ROLES = ("local", "none", "read", "submit", "admin", "read:shop", "submit:shop", "admin:shop")
# A valid request may be refused because of the state of a crawl, and a server ignores what it does not know.
_LEFT_OUT = "positive_data_acceptance,negative_data_rejection"
# A stream does not end; it has tests of its own.
_STREAM = "/v1/crawls/{crawl}/events"
_GRACE_SECONDS = 300
_STORE = {"appendfsync": "everysec"}


class RoleResult(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    cases: int
    statuses: dict[str, int]
    # Title of a failure, and the operations that have it.
    failures: dict[str, list[str]]

    def text(self) -> str:
        statuses = "  ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        lines = [f"{self.role:<12} {self.cases:>7,} cases  {statuses or 'no response'}"]
        lines += [f"  {title}: {', '.join(where)}" for title, where in self.failures.items()]
        return "\n".join(lines)


class _Web(BaseHTTPRequestHandler):
    """Answers for every host, as a forward proxy."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"<title>a page</title><a href=/a>a</a><a href=/b>b</a>"
        self.send_response(404 if self.path.endswith("/robots.txt") else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def _web() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Web)
    httpd.daemon_threads = True
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()


def run(role: str, api: ApiProcess, token: str, seconds: float, folder: Path) -> RoleResult:
    """One run of schemathesis as this role."""
    folder = folder.resolve() / role.replace(":", "-")
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{api.url}/openapi.json", "--max-time", str(int(seconds)),
        "--phases", "examples,coverage,fuzzing,stateful", "--exclude-checks", _LEFT_OUT, "--exclude-path", _STREAM,
        "--generation-database", "none", "--continue-on-failure", "--no-color", "--request-timeout", "60",
        "--report-json-path", str(folder / "report.json"),
        *(["--header", f"Authorization: Bearer {token}"] if token else []),
    ]  # fmt: skip
    counts = folder / "statuses.json"
    environ = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.api.schema_hooks", COUNTS: str(counts),
               "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}  # fmt: skip
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            timeout=seconds + _GRACE_SECONDS, check=False,
        )  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    failures = {f"{each['code']} {each['title']}": each["operations"] for each in report["failures"]}
    failures |= {"errors of schemathesis": [str(each)[:200] for each in report["errors"]]} if report["errors"] else {}
    statuses = json.loads(counts.read_text())
    return RoleResult(role=role, cases=report["test_cases"]["generated"], statuses=statuses, failures=failures)


@contextlib.contextmanager
def _servers(folder: Path, store: Server) -> Iterator[dict[str, tuple[ApiProcess, str]]]:
    """The server and the token of each role."""
    tokens = {role: create_token(role) for role in ROLES if role not in ("local", "none")}
    lines = [f'{role.replace(":", "-")} = "{line}"' for role, (_, line) in tokens.items()]
    with _web() as proxy, contextlib.ExitStack() as stack:
        settings = (
            f'[api]\nrate = 1000000\n[fetch]\nproxy = "{proxy}"\n'
            f'[outputs]\ndefault = "{folder / "records.db"}"\n[tokens]\n'
        )
        place = ("--store", store.url)
        local = stack.enter_context(serve_api(folder / "local", *place, settings=settings))
        guarded = stack.enter_context(serve_api(folder / "guarded", *place, settings=settings + "\n".join(lines)))
        log = stack.enter_context((folder / "worker.log").open("wb"))
        command = [sys.executable, "-m", "shoal", "worker", *place, "--workers", "1", "--allow-network", "127.0.0.0/8"]
        worker = subprocess.Popen(command, cwd=folder / "guarded", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield {role: (guarded, tokens[role][0]) for role in tokens} | {"local": (local, ""), "none": (guarded, "")}
            assert worker.poll() is None, (folder / "worker.log").read_text()[-2000:]
        finally:
            worker.terminate()
            worker.wait(60)


def main(arguments: list[str]) -> int:
    seconds = float(arguments[0]) if arguments else 3600.0
    roles = arguments[1:] or list(ROLES)
    failed = False
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder, "store"), options=_STORE) as store,
        _servers(Path(folder), store) as servers,
    ):
        for role in roles:
            result = run(role, *servers[role], seconds / len(roles), FOLDER)
            print(result.text(), flush=True)
            failed = failed or bool(result.failures) or any(status >= "500" for status in result.statuses)
    print("failures; see " + str(FOLDER) if failed else "no failure, no 5xx")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
