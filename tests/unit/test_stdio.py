"""Output without a reader is dropped, whole lines at a time, and never blocks."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from shoal.stdio import DroppingWriter


def drain(fd: int) -> bytes:
    os.set_blocking(fd, False)
    data = b""
    try:
        while chunk := os.read(fd, 65536):
            data += chunk
    except BlockingIOError:
        pass
    return data


def test_a_full_pipe_drops_output_and_reports_it_when_it_is_read_again() -> None:
    reader, fd = os.pipe()
    writer = DroppingWriter(fd, patience_seconds=0.0)
    line = b"x" * 99 + b"\n"
    written = 0
    while writer.takes_output():
        written += writer.write(line)
    for _ in range(7):
        assert writer.write(line) == len(line)
    data = drain(reader)
    assert len(data) == written - written % len(line)
    writer.write(b"here again\n")
    assert drain(reader) == b"(7 messages were dropped because nobody read them.)\nhere again\n"


@pytest.mark.parametrize("length", [3000, 30_000, 300_000])
def test_a_reader_sees_no_incomplete_line(length: int) -> None:
    reader, fd = os.pipe()
    writer = DroppingWriter(fd, patience_seconds=0.0, notice=False)
    data = b""
    for number in range(300):
        writer.write(b"%d:" % number + b"x" * length + b"\n")
        if number % 50 == 49:
            data += drain(reader)
    # What is left of the last line that was begun comes before anything new.
    while writer._unsent:
        writer._send()
        data += drain(reader)
    assert {len(line.partition(b":")[2]) for line in data.splitlines()} == {length}


@pytest.mark.skipif(sys.platform != "linux", reason="terminals of other systems have other buffers")
def test_a_terminal_that_is_not_read_does_not_block() -> None:
    master, fd = pty.openpty()
    writer = DroppingWriter(fd, patience_seconds=0.0)
    for number in range(2000):
        writer.write(b"%d " % number + b"x" * 200 + b"\n")
    assert not writer.takes_output()
    assert os.get_blocking(fd), "the terminal belongs to the shell, too"
    os.close(master)
    os.close(fd)
