"""A small AWS Lambda: its Runtime API on a port, and the real runtime client with Shoal's handler as a process."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers import WAIT_SECONDS
from tests.system.shell import ROOT

_API = "/2018-06-01/runtime"


class Function:
    """One execution environment: invocations are served one after the other, by the same process while it lives."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._invocations: queue.Queue[tuple[str, int, Any]] = queue.Queue()
        self._results: queue.Queue[tuple[str, str, Any]] = queue.Queue()
        self._count = 0
        self._folder = folder
        function = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                request, deadline_ms, event = function._invocations.get()
                body = json.dumps(event).encode()
                self.send_response(200)
                self.send_header("Lambda-Runtime-Aws-Request-Id", request)
                self.send_header("Lambda-Runtime-Deadline-Ms", str(deadline_ms))
                self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-west-1:1:function:shoal")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request, _, kind = self.path.removeprefix(f"{_API}/invocation/").partition("/")
                function._results.put((request, kind, json.loads(body)))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        self._environ |= {
            "PYTHONPATH": str(ROOT / "src"), "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_port}",
            "LAMBDA_TASK_ROOT": str(folder), "AWS_LAMBDA_FUNCTION_NAME": "shoal", "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512", "AWS_LAMBDA_LOG_GROUP_NAME": "g",
            "AWS_LAMBDA_LOG_STREAM_NAME": "s", "AWS_REGION": "eu-west-1", **environ,
        }  # fmt: skip
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "function.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "awslambdaric", "shoal.serverless.lambda_handler"], cwd=self._folder,
                env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def begin(self, event: Any, seconds: float) -> str:
        """Start an invocation."""
        self._count += 1
        request = f"request-{self._count}"
        self._invocations.put((request, int((time.time() + seconds) * 1000), event))
        return request

    def result(self, request: str) -> Any:
        """Wait for the result of an invocation."""
        answered, kind, body = self._results.get(timeout=WAIT_SECONDS)
        assert (answered, kind) == (request, "response"), (body, (self._folder / "function.log").read_text())
        return body

    def invoke(self, event: Any, seconds: float) -> Any:
        return self.result(self.begin(event, seconds))

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the environment in the middle of an invocation; the next one gets another process."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def function(folder: Path, **environ: str) -> Iterator[Function]:
    folder.mkdir()
    opened = Function(folder, environ)
    try:
        yield opened
    finally:
        opened.close()
