"""Where bodies are kept (`--files`): what a user types, and what keeps them there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from shoal.errors import SinkRefused
from shoal.settings import masked
from shoal.sinks.bodies import s3
from shoal.sinks.bodies.body_store import BodyStore
from shoal.sinks.bodies.folder import FolderBodyStore

__all__ = ["BodyStore", "are_local", "check_files", "open_files"]


def check_files(uri: str) -> str:
    """The URI in its full spelling; SinkRefused in one sentence for what is no place. It opens and makes nothing."""
    place = _parsed(uri)
    if isinstance(place, str):
        s3.check_driver()
        return place
    if place.exists() and not place.is_dir():
        raise SinkRefused(f"Files cannot be kept in {place}: it is a file and no folder.")
    folder = place if place.exists() else place.parent
    if not folder.is_dir():
        raise SinkRefused(f"The folder {folder} for the files in {place.name} does not exist; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SinkRefused(f"The folder {folder} for files cannot be written by this user.")
    return f"file:{place}"


def are_local(uri: str) -> bool:
    """Whether these files are on this machine, so that workers of other machines would keep theirs elsewhere."""
    return isinstance(_parsed(uri), Path)


def open_files(uri: str, *, on_trouble: Callable[[str], None] | None = None) -> BodyStore:
    """A worker's way to this place. `on_trouble` is told what it waits for, and '' when it works again."""
    check_files(uri)
    place, told = _parsed(uri), on_trouble or (lambda sentence: None)
    if isinstance(place, Path):
        return FolderBodyStore(place, told)
    return s3.S3BodyStore(place, told)


def _parsed(uri: str) -> Path | str:
    """The absolute path of a folder, or the full spelling of a bucket."""
    shown = masked(uri.partition("?")[0])
    shown = repr(shown if len(shown) <= 200 else shown[:200] + "...")
    if not uri or not uri.isprintable():
        raise SinkRefused(f"No files can be kept in {shown}; name a folder or s3://BUCKET/PREFIX.")
    named = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", uri)
    scheme, path = (named[1].lower(), named[2]) if named else ("file", uri)
    if scheme == "s3":
        return s3.bucket_of(uri).uri
    if scheme != "file" or not path or re.match(r"//[^/]", path):
        raise SinkRefused(f"No files can be kept in {shown}; name a folder or s3://BUCKET/PREFIX.")
    try:
        return Path(re.sub(r"\A/+", "/", path)).resolve()
    except (OSError, RuntimeError):
        raise SinkRefused(f"The folder {shown} for files cannot be reached: its path is a loop of links.") from None
