"""A record as outputs show it: one column per field of Record, with the same names and values in every technology."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence

import msgspec

from shoal.model.record import Record

COLUMNS: tuple[str, ...] = Record.__struct_fields__
REPLACEMENT = "\ufffd"


def moment(record: Record) -> str | None:
    """When it was fetched, as ISO 8601 in UTC with milliseconds, which sorts as text; None when it never was."""
    if not record.fetched_at:
        return None
    text = datetime.datetime.fromtimestamp(record.fetched_at, datetime.UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def digest(record: Record) -> bytes:
    """The key in 16 bytes, for databases whose indexes cannot hold a long URL."""
    return hashlib.sha256(f"{record.crawl}\0{record.url}".encode()).digest()[:16]


def last_of_each(records: Sequence[Record]) -> Sequence[Record]:
    """One record of each key: the last one, to which a 304 only adds."""
    if len({record.key for record in records}) == len(records):
        return records
    kept: dict[tuple[str, str], Record] = {}
    for record in records:
        before = kept.get(record.key)
        if before is not None and record.status == 304:
            record = msgspec.structs.replace(
                before,
                fetched_at=record.fetched_at,
                etag=record.etag or before.etag,
                last_modified=record.last_modified or before.last_modified,
            )
        kept[record.key] = record
    return list(kept.values())


def encodable(record: Record, *, nul: str = "\0") -> Record:
    """The record as UTF-8 can carry it: halves of a surrogate pair are joined, a lone one becomes U+FFFD.

    Rare, so it is done to batches that failed to encode and to no others. `nul` stands in for NUL where that cannot be.
    """

    def carried(text: str) -> str:
        return whole(text).replace("\0", nul)

    texts = {name: carried(value) for name in COLUMNS if isinstance(value := getattr(record, name), str)}
    hops = tuple((carried(url), status) for url, status in record.redirects)
    return msgspec.structs.replace(record, **texts, redirects=hops)


def whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
