"""`--out -`: records as JSON lines on standard output, while the crawl runs.

Workers write part files, which are merged into a file in the folder of the store. This process copies new records
of that file to standard output, and removes the file when the crawl is finished.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from shoal.settings import Settings

_CHUNK = 1 << 20


def output_uri(settings: Settings, crawl: str) -> str:
    """Return the URI of the output that a crawl uses for standard output."""
    folder = _folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    return f"jsonl:{folder / quote(crawl, safe='')}.jsonl"


def is_standard_output(uri: str, settings: Settings) -> bool:
    return uri.startswith("jsonl:") and Path(uri.removeprefix("jsonl:")).parent == _folder(settings)


def _folder(settings: Settings) -> Path:
    return Path(settings.store.folder).absolute() / "stdout"


class RecordCopy:
    """Copies new records of such outputs. Records that exist at the start were printed by an earlier command."""

    def __init__(self, outputs: Iterable[str], settings: Settings) -> None:
        paths = [Path(uri.removeprefix("jsonl:")) for uri in outputs if is_standard_output(uri, settings)]
        self._positions = {path: path.stat().st_size if path.exists() else 0 for path in paths}
        self.unread = False

    def copy(self) -> bool:
        """Print new records; False if they are no longer read."""
        for path, position in self._positions.items():
            if self.unread or not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(position)
                while chunk := file.read(_CHUNK):
                    # Up to the last whole line: a merge may be writing the next.
                    whole = chunk.rfind(b"\n") + 1
                    if not whole and len(chunk) == _CHUNK:
                        whole = len(chunk)
                    if not whole or not self._print(chunk[:whole]):
                        break
                    position += whole
                    file.seek(position)
            self._positions[path] = position
        return not self.unread

    def remove(self) -> None:
        """Remove the files. Call it when the crawl is finished and everything was printed."""
        for path in self._positions:
            path.unlink(missing_ok=True)

    def _print(self, lines: bytes) -> bool:
        try:
            sys.stdout.buffer.write(lines)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self.unread = True
            # Python would report the closed pipe once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return not self.unread
