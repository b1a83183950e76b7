"""Versions of a page in a perpetual crawl: the texts that are kept with its changes, and the difference of two of them.

A version is an item of the output for changes, numbered from 1 to the number of versions that are kept, in turn: a
database overwrites the oldest. The number depends only on the changes in the page's history, so a visit that is
repeated after a crash writes the same row, and still finds the version before it, which it knows by its hash.
"""

from __future__ import annotations

import contextlib
import difflib
from itertools import islice

import msgspec

from shoal.errors import SinkError
from shoal.model.page_history import PageHistory
from shoal.model.record import Item, Record
from shoal.sinks.reader import items_of_page
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import VisitResult

VERSIONS = "versions"
# Between the first and the last line that differ, more lines than this are not compared, but replaced as a whole.
_COMPARED_LINES = 2000
_MOST_CHARACTERS = 1_000_000


async def add_version(
    result: VisitResult, context: CrawlContext, history: PageHistory, old_hash: bytes
) -> VisitResult:  # fmt: skip
    """The result of a visit that found a change, with the text as a version, and with the difference if requested.

    `history` is the one after the visit. If the version before is missing, e.g. because it is no longer kept, the
    difference is ''.
    """
    record, change = result.record, result.change
    if record is None or change is None or record.status == 304 or not record.text_hash:
        return result
    if context.policy.change_diffs and history.text_hash != old_hash:
        text = await _text(context, record.url, old_hash.hex())
        diff = "" if text is None else difference(text, record.text)
        change = msgspec.structs.replace(change, data={**change.data, "diff": diff})
    return result._replace(change=change, version=_version(record, history, context))


def _version(record: Record, history: PageHistory, context: CrawlContext) -> Item:
    return Item(
        crawl=record.crawl, url=record.url, spider=VERSIONS, number=history.changes % context.versions + 1,
        fetched_at=record.fetched_at,
        data={"text_hash": record.text_hash, "title": record.title, "text": record.text},
    )  # fmt: skip


async def _text(context: CrawlContext, url: str, text_hash: str) -> str | None:
    for uri in context.version_outputs:
        # An output that cannot be read now must not keep the change from being reported.
        with contextlib.suppress(SinkError):
            for item in await items_of_page(uri, context.name, url, VERSIONS):
                if item.data.get("text_hash") == text_hash:
                    return str(item.data.get("text", ""))
    return None


def difference(old: str, new: str) -> str:
    """The unified diff of two texts; '' if it would be longer than a million characters."""
    before, after = old.splitlines(), new.splitlines()
    head = 0
    for mine, theirs in zip(before, after, strict=False):
        if mine != theirs:
            break
        head += 1
    tail = 0
    for mine, theirs in zip(reversed(before[head:]), reversed(after[head:]), strict=False):
        if mine != theirs:
            break
        tail += 1
    if max(len(before), len(after)) - head - tail > _COMPARED_LINES:
        lines = _replaced(before, after, head, tail)
    else:
        lines = list(islice(difflib.unified_diff(before, after, "old", "new", lineterm=""), _MOST_CHARACTERS))
    text = "\n".join(lines)
    return "" if len(text) > _MOST_CHARACTERS else text


def _replaced(before: list[str], after: list[str], head: int, tail: int) -> list[str]:
    """A diff of one hunk, without lines around it. The time of difflib grows with the square of the lines."""
    removed, added = before[head : len(before) - tail], after[head : len(after) - tail]
    hunk = f"@@ -{head + bool(removed)},{len(removed)} +{head + bool(added)},{len(added)} @@"
    return ["--- old", "+++ new", hunk, *(f"-{line}" for line in removed), *(f"+{line}" for line in added)]
