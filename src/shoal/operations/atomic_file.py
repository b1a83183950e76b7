"""A file that is created complete or not at all: written under a temporary name beside it, and renamed at the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shoal.errors import InvalidInput, SinkRefused


@contextlib.contextmanager
def whole_file(name: str, *, force: bool, private: bool = False) -> Iterator[BinaryIO]:
    """The file to write to. Without `force` an existing file is refused; only its owner can read a `private` file.

    A pipe or a device is written directly: it has no content to overwrite.
    """
    # The target of a symbolic link is replaced, not the link.
    path = Path(os.path.realpath(name))
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as device:
                yield device
            return
        if path.is_dir():
            raise InvalidInput(f"{name} is a folder; pass a file.")
        if path.exists() and not force:
            raise InvalidInput(f"The file {name} already exists; choose another one, or pass --force.")
        part = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SinkRefused(f"Cannot write the file {name}: {error.strerror or error}.") from error
