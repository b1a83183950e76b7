"""Links that the scope of one crawl refused: most pages of a site have the same ones, and the scope does not change."""

from __future__ import annotations

_REMEMBERED = 10_000


class OutsideLinks:
    """Refused links by the hash of the page's host and the URL, which has 64 bits and a secret key."""

    def __init__(self) -> None:
        self._marks: set[int] = set()

    def __contains__(self, link: tuple[str, str]) -> bool:
        return hash(link) in self._marks

    def add(self, link: tuple[str, str]) -> None:
        """Remember a link, given as the host of its page and its URL."""
        if len(self._marks) >= _REMEMBERED:
            self._marks.clear()
        self._marks.add(hash(link))
