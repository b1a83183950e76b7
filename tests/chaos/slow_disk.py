"""Makes a server's disk slow: strace delays every fsync of the process."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.servers import program


@contextlib.contextmanager
def slow_disk(pid: int, seconds: float) -> Iterator[None]:
    """Delay every fsync and fdatasync of a process by so many seconds. The delay ends with the process."""
    delay = round(seconds * 1_000_000)
    argv = [program("strace", "apt-get install strace"), "-f", "-qq", "-p", str(pid), "-e", "trace=fsync,fdatasync"]
    for call in ("fsync", "fdatasync"):
        argv += ["-e", f"inject={call}:delay_enter={delay}"]
    tracer = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        time.sleep(0.3)
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            pytest.skip(f"strace cannot attach to the server: {tracer.stderr.read().decode().strip()[-200:]}")
        yield
    finally:
        tracer.terminate()
        tracer.wait()
        if tracer.stderr is not None:
            tracer.stderr.close()
