"""Fingerprints: 64 bits that stand for a URL in deduplication, and the shard of a host.

The upper ten bits come from the host, the rest from the URL. So a fingerprint alone determines its shard, for any
number of shards, and a frontier can be loaded into another number of them. Two URLs of one host have the same
fingerprint by chance once in about 2**54 pairs. The store's secret seed prevents others from constructing such pairs.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

MAX_SHARDS = 1024
_LOW = (1 << 54) - 1
_SIGN = 1 << 63
_WRAP = 1 << 64


def host_bits(host: str) -> int:
    """Ten bits of a host name; the same in every store."""
    return xxh3_64_intdigest(host.encode()) >> 54


def shard_of(bits: int, shards: int) -> int:
    return bits * shards >> 10


def fingerprint(bits: int, url: str, seed: int, method: str = "GET", body: bytes = b"") -> int:
    """A signed 64-bit number, as integer sets hold it."""
    data = url.encode()
    if method != "GET" or body:
        data = b"%s %s\n%s" % (method.encode(), data, body)
    value = bits << 54 | xxh3_64_intdigest(data, seed) & _LOW
    return value - _WRAP if value & _SIGN else value


def pass_mark(number: int) -> bytes:
    """A marker in place of the body, for a visit that is made once in each pass over a crawl. No request has it."""
    return b"\0pass %d" % number


def variant_mark(variant: str, body: bytes) -> bytes:
    """A marker in place of the body, for a visit that is made although the crawl has made the same request before."""
    return b"\0variant %s\n%s" % (variant.encode(), body)


def host_mark(host: str, body: bytes) -> bytes:
    """A marker in place of the body, for a visit in the queue of a host that is not the URL's own.

    One host in 1,024 has the same ten bits: without the marker, the visit would count as the one of the URL's own host.
    """
    return b"\0host %s\n%s" % (host.encode(), body)


def bits_of(value: int) -> int:
    """The host's bits of a fingerprint."""
    return (value + _WRAP if value < 0 else value) >> 54
