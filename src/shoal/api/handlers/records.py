"""Records of a crawl over HTTP, a page at a time, out of the first of its outputs that can be read here."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.pagination import MOST_A_PAGE, cursor_of
from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.crawl import Crawl
from shoal.model.record import Item, Record
from shoal.sinks.columns import Row
from shoal.sinks.reader import Place, page

_FIELDS = frozenset((*Record.__struct_fields__, *Item.__struct_fields__))
_OF_ITEMS = frozenset(Item.__struct_fields__) - frozenset(Record.__struct_fields__)
# Which of the crawl's outputs it is read from, and where in it.
_Behind = tuple[Annotated[int, Meta(ge=0)], list[Any]]


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records as the output has them, each with the attributes of its crawl. `next` is null on the last page."""

    crawl: str
    records: list[dict[str, Any]]
    next: str | None = None


async def records(asked: RequestContext) -> Response:
    crawl = await asked.crawl()
    most = asked.whole("limit", 100, MOST_A_PAGE)
    kind = asked.text("kind", "page", "item") or "page"
    fields = [name for name in asked.text("fields").split(",") if name]
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise InvalidInput(f"There is no field {unknown[0]!r:.80} of records; there are {', '.join(sorted(_FIELDS))}.")
    of = ("records", crawl.id, kind)
    first, behind = asked.cursor(_Behind, *of) or (0, None)
    # By its data an item in a file is known as one.
    known = ["data"] if _OF_ITEMS.intersection(fields) else []
    columns = list(dict.fromkeys(["crawl", "url", *known, *fields])) if fields else []
    refused: Exception = InvalidInput(f"Crawl {crawl.id!r} has no output, so that there are no records of it.")
    for number, output in enumerate(crawl.spec.get("outputs", ())):
        if number < first:
            continue
        uri = asked.server.settings.outputs.get(output, output)
        found: list[Row] = []
        last: Place | None = None
        try:
            found, last = await page(uri, crawl.id, most, behind=behind, columns=columns, items=kind == "item")
        except UnknownCrawl:
            pass
        except (SinkRefused, InvalidInput) as error:
            if behind is not None:
                raise
            # The next output may be one that can be read.
            refused = error
            continue
        shown = [_shown(row, crawl, fields) for row in found]
        following = cursor_of((number, last), *of) if last is not None else None
        return Json(RecordPage(crawl=crawl.id, records=shown, next=following))
    raise refused


def _shown(row: Row, crawl: Crawl, fields: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(row)
    if fields:
        told = {name: told[name] for name in fields if name in told}
    attributes = crawl.spec.get("attributes") or {}
    return {**told, "attributes": attributes} if attributes else told
