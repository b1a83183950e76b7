"""Endless mutated inputs, for machines without a coverage-guided fuzzer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_PIECES = (
    b"\x00",
    b"\xff",
    b"\xff\xfe",
    b"\xe2\x80\xa8",
    b"<",
    b">",
    b"&",
    b'"',
    b"\n",
    b"\r\n",
    b"{",
    b"[",
    b"%",
    b"://",
)


def mutations(seeds: Sequence[bytes], *, seed: int) -> Iterator[bytes]:
    """Each input is a seed with some bytes changed, removed, repeated or replaced by a piece that parsers dislike."""
    rng = random.Random(seed)
    while True:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 8)):
            start = rng.randint(0, len(data))
            end = min(len(data), start + rng.choice((0, 1, 2, 8, 64)))
            piece = rng.choice((
                rng.choice(_PIECES), rng.randbytes(rng.randint(1, 4)), data[start:end] * rng.choice((2, 100)),
                b"", rng.choice(seeds),
            ))  # fmt: skip
            data[start:end] = piece
        yield bytes(data[:65536])
