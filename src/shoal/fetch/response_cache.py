"""A cache of responses in a folder, for developing a spider: a page is requested once, however often it is crawled.

It is not a cache as HTTP means it: an entry is found by its URL alone and never expires. Delete the folder to fetch
everything again. Responses that another attempt may change (429, 5xx and the like) are not kept. A worker that finds a
response here sends no request, so the host's delay does not apply to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from shoal.errors import InvalidInput
from shoal.model.response import Response

_KEPT = frozenset((*range(200, 400), 404, 410)) - {304}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Response).decode


class ResponseCache:
    """Responses to GET requests. Processes may share a folder: an entry is written whole or not at all."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"Cannot use {folder} as a cache: {error.strerror}; choose another folder.") from None

    def read(self, url: str) -> Response | None:
        """The stored response; None if there is none that can be read."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            response = _decode(self._path(url).read_bytes())
            if response.url == url:
                return response
        return None

    def write(self, response: Response) -> None:
        """Store a response. A full disk only means that the page is requested again."""
        if response.status not in _KEPT:
            return
        path = self._path(response.url)
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(_encode(response))
            unfinished.rename(path)

    def _path(self, url: str) -> Path:
        name = hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
        return self._folder / name[:2] / name
