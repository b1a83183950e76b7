"""Import of a scrapy-redis queue into the frontier: SHOAL_DRAIN = True, for one run. The only code that unpickles.

The unpickler accepts plain data, dates and items of loaded classes only. A pickle can call their constructors, and no
other class or function. A request is removed from its queue after it is in the frontier. Fingerprints cannot be turned
into requests, so the old duplicate filter is read into memory and checked as well, while the setting is on.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import pickle
from collections.abc import Callable
from typing import Any

from scrapy import Request, Spider
from scrapy.settings import BaseSettings
from w3lib.url import canonicalize_url

from shoal.errors import InvalidInput
from shoal.frontier import Frontier
from shoal.frontier.scrapy_redis_keys import ScrapyRedisKeys
from shoal.scrapy import codec, scrapy_redis_settings
from shoal.scrapy.outbox import Outbox

log = logging.getLogger("shoal.scrapy")
_BATCH = 200
_PLAIN = {
    ("datetime", "date"), ("datetime", "datetime"), ("datetime", "time"), ("datetime", "timedelta"),
    ("datetime", "timezone"), ("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID"),
    ("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "frozenset"),
}  # fmt: skip


class Importer:
    def __init__(
        self, spider: Spider, settings: BaseSettings, frontier: Frontier, outbox: Outbox,
        push: Callable[[Request, bytes], None],
    ) -> None:  # fmt: skip
        self._spider = spider
        self._server = ScrapyRedisKeys(frontier)
        self._outbox = outbox
        self._push = push
        self._queue, self._filter = (
            scrapy_redis_settings.key_of(scrapy_redis_settings.value(settings, name), spider.name)
            for name in ("SCHEDULER_QUEUE_KEY", "SCHEDULER_DUPEFILTER_KEY")
        )
        self._seen: set[bytes] = set()
        self.busy = True

    async def open(self) -> None:
        """Read the old duplicate filter, before the first request is filtered."""
        self._seen = {member async for member in self._server.members(self._filter)}

    def seen(self, request: Request) -> bool:
        """Whether the old filter has the request, by scrapy-redis' fingerprint."""
        if not self._seen:
            return False
        data = {"method": request.method, "url": canonicalize_url(request.url), "body": request.body.hex()}
        text = json.dumps(data, sort_keys=True).encode()
        return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode() in self._seen

    async def run(self) -> None:
        moved = 0
        kind = await self._server.type_of(self._queue)
        while entries := await self._server.first_entries(self._queue, kind, _BATCH):
            for data in entries:
                try:
                    request = read_request(data, self._spider)
                except InvalidInput as error:
                    log.error("Dropped an invalid request of %s: %s", self._queue, error)
                else:
                    # Bypass the filter: scrapy-redis marked the request as seen when it was queued.
                    request.dont_filter = True
                    self._push(request, hashlib.sha1(data, usedforsecurity=False).digest())
            await self._outbox.empty()
            for data in entries:
                await self._server.remove_entry(self._queue, kind, data)
            moved += len(entries)
        log.info("Imported %d requests from scrapy-redis into the frontier.", moved)
        self.busy = False


def read_request(data: bytes, spider: Spider) -> Request:
    """The request of a scrapy-redis pickle; InvalidInput for anything else."""
    try:
        fields = _QueueReader(io.BytesIO(data)).load()
        return codec.from_dict(fields, spider)
    except Exception as error:  # a broken pickle can raise anything
        raise InvalidInput(f"{type(error).__name__}: {error}") from None


class _QueueReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        return codec.item_class(f"{module}.{name}")
