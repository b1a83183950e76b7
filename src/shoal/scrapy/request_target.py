"""The frontier's target of a request, also if its URL is longer than the frontier allows.

Such a URL is replaced with a short one of the same host, with a hash as its path. So it is deduplicated and paced like
any other; the request keeps its own URL.
"""

from __future__ import annotations

import hashlib
from urllib.parse import urlsplit

from w3lib.url import canonicalize_url

from shoal.urls.canonical import MAX_URL_BYTES, Target, canonical


def target_of(url: str) -> Target:
    """The target of a request. Raises InvalidUrl if it has no host, e.g. for file: and data: URLs."""
    if len(url) <= MAX_URL_BYTES:
        return canonical(url)
    digest = hashlib.sha1(canonicalize_url(url).encode(errors="replace"), usedforsecurity=False).hexdigest()
    parts = urlsplit(url)
    return canonical(f"{parts.scheme}://{parts.netloc}/long-url-{digest}")


def path_of(url: str) -> str:
    """The path and query of a URL, for robots.txt. Raises InvalidUrl as `target_of` does."""
    if len(url) <= MAX_URL_BYTES:
        return canonical(url).path
    target_of(url)
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path
