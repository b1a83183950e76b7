"""A Control (control.py) on an HTTP API: `--store http://...`, with the token of SHOAL_TOKEN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from shoal.cli.control import CrawlRow
from shoal.client import Client, is_api
from shoal.settings import load

if TYPE_CHECKING:
    from shoal.operations import Description
    from shoal.operations.change import ChangedCrawl
    from shoal.operations.explain import Explanation
    from shoal.operations.touch import Touched


def client_of(store: str | None) -> Client | None:
    """Return a client if the store's URL, from the flag or else from the settings, is the URL of an API."""
    url = store or load().settings.store.url
    return Client(url) if is_api(url) else None


class ApiControl:
    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def crawls(self) -> list[CrawlRow]:
        rows = []
        for crawl in self._client.crawls():
            counts = crawl["counts"]
            remaining = counts["waiting"] + counts["leased"] + counts["later"]
            rows.append(CrawlRow(crawl["id"], crawl["state"], counts["stored"], remaining, crawl["created_at"]))
        return rows[::-1]

    def describe(self, crawl: str) -> Description:
        import msgspec

        from shoal.operations import Description

        return msgspec.convert(self._client.crawl(crawl), Description)

    def explain(self, crawl: str, url: str) -> Explanation:
        import msgspec

        from shoal.operations.explain import Explanation

        return msgspec.convert(self._client.explain(crawl, url), Explanation)

    def change(self, crawl: str, verb: str) -> tuple[str, str]:
        # The API returns nothing for a crawl that it deleted.
        changed = getattr(self._client, verb)(crawl) or {"state": "deleted"}
        return changed["state"], ""

    def change_options(self, crawl: str, options: dict[str, Any], *, preview: bool) -> ChangedCrawl:
        import msgspec

        from shoal.operations.change import ChangedCrawl

        return msgspec.convert(self._client.change(crawl, preview=preview, **options), ChangedCrawl)

    def touch(self, crawl: str, urls: Sequence[str]) -> Touched:
        import msgspec

        from shoal.operations.touch import Touched

        return msgspec.convert(self._client.touch(crawl, urls), Touched)

    def failed(self, crawl: str) -> Iterator[tuple[str, str]]:
        for failure in self._client.failed(crawl):
            yield failure["reason"], failure["url"]

    def retry(self, crawl: str, *, urls: Sequence[str] | None = None, reason: str = "") -> tuple[int, str]:
        return self._client.retry(crawl, urls=urls, reason=reason), ""

    def forget(self, crawl: str, urls: Sequence[str]) -> int:
        return self._client.forget(crawl, urls)

    def revisit(self, crawl: str, urls: Sequence[str]) -> tuple[int, str]:
        return self._client.revisit(crawl, urls), ""

    def hosts(self) -> Iterator[dict[str, Any]]:
        return self._client.hosts()

    def host(self, name: str) -> dict[str, Any]:
        return self._client.host(name)

    def change_host(self, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        return self._client.change_host(name, **changes)
