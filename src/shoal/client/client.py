"""The client: each route of the API as a method, for crawls and for the fleet."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from shoal import errors
from shoal.client.connection import ApiConnection, JsonObject


class Client(ApiConnection):
    """One connection, kept open between calls. Threads may share it. The default token is $SHOAL_TOKEN.

    SHOAL_TOKEN_FILE may name a file that contains it.
    """

    # Crawls

    def submit(self, **request: Any) -> JsonObject:
        """Submit a crawl. `request` has the fields of CrawlRequest; returns `id`, and whether it was `created`."""
        return self._request("POST", "/v1/crawls", request)

    def crawls(self, *, state: str = "", app: str = "") -> Iterator[JsonObject]:
        """Every crawl, newest first."""
        return self._pages("/v1/crawls", "crawls", {"state": state, "app": app})

    def crawl(self, crawl: str) -> JsonObject:
        return self._request("GET", _path(crawl))

    def pause(self, crawl: str) -> JsonObject:
        return self._request("POST", _path(crawl, "pause"))

    def resume(self, crawl: str) -> JsonObject:
        return self._request("POST", _path(crawl, "resume"))

    def stop(self, crawl: str) -> JsonObject:
        return self._request("POST", _path(crawl, "stop"))

    def delete(self, crawl: str) -> None:
        self._request("DELETE", _path(crawl))

    def change(self, crawl: str, *, preview: bool = False, **options: Any) -> JsonObject:
        """Change options of an open crawl; with `preview`, only count the waiting URLs that new rules exclude."""
        return self._request("PATCH", _path(crawl), {"preview": preview, **options})

    def add(self, crawl: str, seeds: Iterable[str]) -> JsonObject:
        """Add URLs to an open crawl."""
        return self._request("POST", _path(crawl, "seeds"), {"seeds": list(seeds)})

    def touch(self, crawl: str, urls: Iterable[str]) -> JsonObject:
        """Visit pages of a perpetual crawl soon, at most 1,000; returns how many, and which URLs were refused."""
        return self._request("POST", _path(crawl, "touch"), {"urls": list(urls)})

    def failed(self, crawl: str) -> Iterator[JsonObject]:
        """Every failed URL with its reason, fetched page by page."""
        return self._pages(_path(crawl, "failed"), "failed", {"limit": "1000"})

    def retry(self, crawl: str, *, urls: Iterable[str] | None = None, reason: str = "") -> int:
        """Retry failed URLs: all, or only these URLs or those that failed for this reason. Returns how many."""
        chosen: JsonObject = {} if urls is None else {"urls": list(urls)}
        if reason:
            chosen["reason"] = reason
        return int(self._request("POST", _path(crawl, "retry"), chosen or None)["retried"])

    def forget(self, crawl: str, urls: Iterable[str]) -> int:
        """Forget that a crawl has seen these URLs: they are visited when they are found again. Returns how many."""
        return int(self._request("POST", _path(crawl, "forget"), {"urls": list(urls)})["forgotten"])

    def revisit(self, crawl: str, urls: Iterable[str]) -> int:
        """Visit these URLs again now, although the crawl has seen them. Returns how many."""
        return int(self._request("POST", _path(crawl, "revisit"), {"urls": list(urls)})["queued"])

    def explain(self, crawl: str, url: str) -> JsonObject:
        """Whether a URL is visited by a crawl, and which rule decides."""
        return self._request("GET", f"{_path(crawl, 'explain')}?{urlencode({'url': url})}")

    def records(self, crawl: str, *, kind: str = "page", fields: Iterable[str] = ()) -> Iterator[JsonObject]:
        """Every record of a crawl, fetched page by page."""
        return self._pages(_path(crawl, "records"), "records", {"kind": kind, "fields": ",".join(fields)})

    def events(self, crawl: str) -> Iterator[tuple[str, JsonObject]]:
        """Yield ('counts', ...) whenever the counts change, then ('end', ...) when the crawl has ended."""
        return self._events(crawl, max(60.0, self._timeout))

    def _events(self, crawl: str, idle_seconds: float) -> Iterator[tuple[str, JsonObject]]:
        return self._stream(_path(crawl, "events"), idle_seconds)

    def wait(self, crawl: str, *, timeout_seconds: float = float("inf")) -> JsonObject:
        """Wait until a crawl has ended and return its description; TimeoutError after `timeout_seconds`.

        While the server is unavailable, it retries.
        """
        return next(filter(None, self._polled(crawl, timeout_seconds)))

    def _polled(self, crawl: str, timeout_seconds: float) -> Iterator[JsonObject | None]:
        """Yield None at every event of a crawl, then its description when it has ended."""
        deadline_mono = time.monotonic() + timeout_seconds
        while True:
            with contextlib.suppress(errors.StoreUnavailable):
                for name, _ in self._events(crawl, min(60.0, max(0.1, deadline_mono - time.monotonic()))):
                    if name == "end":
                        yield self.crawl(crawl)
                        return
                    if time.monotonic() > deadline_mono:
                        break
                    yield None
            if time.monotonic() > deadline_mono:
                raise TimeoutError(f"Crawl {crawl} did not end within {timeout_seconds:g} s.")
            time.sleep(min(1.0, max(0.0, deadline_mono - time.monotonic())))

    # The fleet

    def hosts(self) -> Iterator[JsonObject]:
        """Hosts that have waiting URLs or a lease."""
        return self._pages("/v1/hosts", "hosts", {})

    def host(self, host: str) -> JsonObject:
        return self._request("GET", f"/v1/hosts/{quote(host, safe='')}")

    def back_offs(self, host: str) -> list[JsonObject]:
        """The last back-offs of a host, newest first."""
        return list(self._request("GET", f"/v1/hosts/{quote(host, safe='')}/back-offs")["back_offs"])

    def change_host(self, host: str, **changes: Any) -> JsonObject:
        """Set `delay_seconds` or `places` (None removes the setting), or `blocked` (a reason, '' to unblock)."""
        return self._request("PATCH", f"/v1/hosts/{quote(host, safe='')}", changes)

    def workers(self) -> list[JsonObject]:
        return list(self._pages("/v1/workers", "workers", {}))

    def stats(self) -> JsonObject:
        return self._request("GET", "/v1/stats")

    def history(self, crawl: str = "", *, step: str = "minute") -> list[JsonObject]:
        """The counts of a crawl or the fleet, for each minute of the last day or each hour of the last 90 days."""
        path = _path(crawl, "history") if crawl else "/v1/history"
        points: list[JsonObject] = self._request("GET", f"{path}?step={quote(step)}")["points"]
        return points


def _path(crawl: str, *segments: str) -> str:
    return "/".join(["/v1/crawls", quote(crawl, safe=""), *segments])
