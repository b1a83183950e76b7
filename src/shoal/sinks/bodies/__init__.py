"""Where response bodies are stored (`--files`): the URI of a folder or a bucket, and the store behind it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from shoal.errors import SinkRefused
from shoal.sinks.bodies import s3
from shoal.sinks.bodies.body_store import BodyStore
from shoal.sinks.bodies.folder import FolderBodyStore
from shoal.sinks.uri import local_path, names_server, shown_uri, split_scheme

__all__ = ["BodyStore", "are_local", "check_files", "open_files"]


def check_files(uri: str) -> str:
    """The full URI; SinkRefused in one sentence if bodies cannot be stored there. Opens and creates nothing."""
    location = _parsed(uri)
    if isinstance(location, str):
        s3.check_driver()
        return location
    try:
        # Not `exists`, which hides other errors since Python 3.14.
        location.stat()
        exists = True
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except OSError as error:
        raise SinkRefused(f"Files cannot be stored in {str(location)[:80]!r}: {error.strerror}.") from None
    if exists and not location.is_dir():
        raise SinkRefused(f"Files cannot be stored in {location}: it is a file, not a folder.")
    folder = location if exists else location.parent
    if not folder.is_dir():
        raise SinkRefused(f"The folder {folder} for the files in {location.name} does not exist; create it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SinkRefused(f"The folder {folder} for files is not writable by this user.")
    return f"file:{location}"


def are_local(uri: str) -> bool:
    """Whether these files are on this machine, so that workers on other machines would store theirs elsewhere."""
    return isinstance(_parsed(uri), Path)


def open_files(uri: str, *, on_trouble: Callable[[str], None] | None = None) -> BodyStore:
    """A worker's body store. `on_trouble` gets one sentence while it is unavailable, and '' when it works again."""
    check_files(uri)
    location, hear = _parsed(uri), on_trouble or (lambda sentence: None)
    if isinstance(location, Path):
        return FolderBodyStore(location, hear)
    return s3.S3BodyStore(location, hear)


def _parsed(uri: str) -> Path | str:
    """The absolute path of a folder, or the full URI of a bucket."""
    shown = shown_uri(uri.partition("?")[0])
    scheme, path = split_scheme(uri)
    if scheme == "s3" and uri.isprintable():
        return s3.parse_bucket_uri(uri).uri
    if scheme not in ("", "file") or not path or not uri.isprintable() or names_server(path):
        raise SinkRefused(f"Files cannot be stored in {shown}; name a folder or s3://BUCKET/PREFIX.")
    return local_path(path, f"The folder {shown} for files")
