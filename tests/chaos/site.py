"""A made-up web site whose every page is known in advance: the reference that a crawl is compared with.

Pages form a tree, so that a page is found through its parent alone: links that get lost show up as pages that are
never fetched. Links back to older pages are what a dedup has to drop.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    pages: int
    hosts: int

    def url(self, page: int) -> str:
        return f"http://h{page % self.hosts}.example/p/{page}"

    def page(self, url: str) -> int:
        return int(url.rpartition("/")[2])

    def links(self, page: int) -> list[int]:
        children = [child for child in (3 * page + 1, 3 * page + 2, 3 * page + 3) if child < self.pages]
        return [*children, page // 5]

    def walk(self) -> set[str]:
        """Every URL that can be reached from page 0."""
        seen, todo = {0}, [0]
        while todo:
            fresh = set(self.links(todo.pop())) - seen
            seen |= fresh
            todo += fresh
        return {self.url(page) for page in seen}
