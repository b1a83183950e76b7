"""Records of a crawl over HTTP, a page at a time, out of the first of its outputs that can be read here."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response

from shoal.api.context import MOST_A_PAGE, Asked, cursor_of, read_cursor
from shoal.api.problems import Json, Refused
from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.crawl import Crawl
from shoal.model.record import Record
from shoal.sinks.reading import read

# What a page of records may weigh: texts are long.
_MOST_CHARACTERS = 20_000_000
_FIELDS = frozenset(Record.__struct_fields__)


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records as the output has them, each with the attributes of its crawl. `next` is '' on the last page."""

    crawl: str
    records: list[dict[str, Any]]
    next: str = ""


async def records(asked: Asked) -> Response:
    crawl = await asked.crawl()
    most = asked.whole("limit", 100, MOST_A_PAGE)
    items = asked.text("kind", "page", "item") == "item"
    fields = [name for name in asked.text("fields").split(",") if name]
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise InvalidInput(f"There is no field {unknown[0]!r:.80} of records; there are {', '.join(sorted(_FIELDS))}.")
    skip: int = read_cursor(text, int) if (text := asked.text("cursor")) else 0
    if not 0 <= skip < 2**53:
        raise Refused(422, "cursor is not one of this API's: pass what `next` said.")
    found, more = await _page(asked, crawl, skip, most, items, fields)
    after = cursor_of(skip + len(found)) if more else ""
    return Json(RecordPage(crawl=crawl.id, records=found, next=after))


async def _page(
    asked: Asked, crawl: Crawl, skip: int, most: int, items: bool, fields: list[str]
) -> tuple[list[dict[str, Any]], bool]:
    refused: Exception = InvalidInput(f"Crawl {crawl.id!r} has no output, so that there are no records of it.")
    columns = list(dict.fromkeys(["crawl", "url", *fields])) if fields else []
    for output in crawl.spec.get("outputs", ()):
        uri = asked.server.settings.outputs.get(output, output)
        found: list[dict[str, Any]] = []
        passed = characters = 0
        try:
            async with aclosing(read(uri, crawl=crawl.id, columns=columns, items=items)) as batches:
                async for batch in batches:
                    for row in batch[max(0, skip - passed) :]:
                        if len(found) == most or characters > _MOST_CHARACTERS:
                            return found, True
                        characters += len(row.text) if isinstance(row, Record) else 0
                        found.append(_shown(row, crawl, fields))
                    passed += len(batch)
            return found, False
        except UnknownCrawl:
            return [], False
        except (SinkRefused, InvalidInput) as error:
            # The next output may be one that can be read.
            refused = error
    raise refused


def _shown(row: Any, crawl: Crawl, fields: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(row)
    if fields:
        told = {name: told[name] for name in fields}
    attributes = crawl.spec.get("attributes") or {}
    return {**told, "attributes": attributes} if attributes else told
