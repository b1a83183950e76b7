"""A record as outputs show it: one column per field of Record, with the same names and values in every technology."""

from __future__ import annotations

import datetime

import msgspec

from shoal.model.record import Record

COLUMNS: tuple[str, ...] = Record.__struct_fields__


def moment(record: Record) -> str | None:
    """When it was fetched, as ISO 8601 in UTC with milliseconds, which sorts as text; None when it never was."""
    if not record.fetched_at:
        return None
    text = datetime.datetime.fromtimestamp(record.fetched_at, datetime.UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def encodable(record: Record) -> Record:
    """The record as UTF-8 can carry it: halves of a surrogate pair are joined, a lone one becomes U+FFFD.

    Rare, so it is done to batches that failed to encode and to no others.
    """
    texts = {name: whole(value) for name in COLUMNS if isinstance(value := getattr(record, name), str)}
    hops = tuple((whole(url), status) for url, status in record.redirects)
    return msgspec.structs.replace(record, **texts, redirects=hops)


def whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
