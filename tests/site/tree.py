"""Pages that are known in advance: the reference that a crawl is compared with.

Pages form a tree over some hosts, so that a page is found through its parent alone: links that get lost show up as
pages that are never fetched. Links back to older pages are what a dedup has to drop.
"""

from __future__ import annotations

import msgspec

_FILLER = b"<p>It was the best of times, it was the worst of times, it was the age of wisdom.</p>\n"


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """`pages` pages over `hosts` (each host:port), page n on host n modulo their number, under `folder`.

    `size` fills pages up to about that many bytes; `alike` more links a page all lead to pages that are known already.
    """

    pages: int
    hosts: tuple[str, ...]
    folder: str = "/p/"
    fan: int = 3
    size: int = 0
    alike: int = 1

    def url(self, page: int) -> str:
        return f"http://{self.hosts[page % len(self.hosts)]}{self.folder}{page}"

    def links(self, page: int) -> list[int]:
        first = self.fan * page + 1
        children = range(first, min(first + self.fan, self.pages))
        return [*children, *(page // (5 + turn) for turn in range(self.alike))]

    def walk(self) -> set[str]:
        """Every URL that can be reached from page 0."""
        seen, todo = {0}, [0]
        while todo:
            fresh = set(self.links(todo.pop())) - seen
            seen |= fresh
            todo += fresh
        return {self.url(page) for page in seen}

    def body(self, host: str, path: str) -> bytes | None:
        """The page at this path of the host, None when there is none."""
        number = path.removeprefix(self.folder)
        if number == path or not number.isdecimal() or str(int(number)) != number:
            return None
        page = int(number)
        if page >= self.pages or self.hosts[page % len(self.hosts)] != host:
            return None
        links = "".join(f'<a href="{self.url(link)}">page {link}</a>\n' for link in self.links(page))
        head = f"<!doctype html><html lang=en><title>Page {page}</title>\n{links}".encode()
        return head + _FILLER * max(0, (self.size - len(head)) // len(_FILLER))
