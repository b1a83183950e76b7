"""The table of changes that pages offer. Each is a route of the API, with its body made from the fields of a form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from shoal.api.dashboard.components import path
from shoal.api.dashboard.pages.change_crawl import change_of
from shoal.api.dashboard.pages.new_crawl import check_request, request_of
from shoal.api.dashboard.view import View
from shoal.errors import InvalidInput

Form = dict[str, str]


def _nothing(form: Form) -> dict[str, Any]:
    return {}


def _no_body(form: Form) -> dict[str, Any] | None:
    return None


def _to_crawl(params: dict[str, Any], result: dict[str, Any], done: str) -> str:
    return path("crawls", params["crawl"], done=done, n=result.get("retried", result.get("new")))


def _to_failed(params: dict[str, Any], result: dict[str, Any], done: str) -> str:
    return path("crawls", params["crawl"], "failed", done=done, n=result["retried"])


def _to_url(params: dict[str, Any], result: dict[str, Any], done: str) -> str:
    return path("find", url=params["url"], done=done)


def _to_crawls(params: dict[str, Any], result: dict[str, Any], done: str) -> str:
    return path("crawls", done=done)


def _to_new_crawl(params: dict[str, Any], result: dict[str, Any], done: str) -> str:
    return path("crawls", str(result["id"]), done=done)


def _to_host(params: dict[str, Any], result: dict[str, Any], done: str) -> str:
    return path("hosts", str(result["name"]), done=done)


def _chosen(form: Form) -> dict[str, Any]:
    """Return the URL of the row whose button was pressed, or the selected URLs."""
    urls = form["only"] if "only" in form else form.get("urls", "")
    if not urls.split():
        raise InvalidInput("No URL is selected: select the URLs to retry.")
    return {"urls": urls.split()}


def _url(form: Form) -> dict[str, Any]:
    return {"urls": [form.get("url", "")]}


def _of_url(form: Form) -> dict[str, Any]:
    return {"url": form.get("url", "")}


def _reason(form: Form) -> dict[str, Any]:
    if not form.get("reason"):
        raise InvalidInput("No reason is selected.")
    return {"reason": form["reason"]}


def _seeds(form: Form) -> dict[str, Any]:
    return {"seeds": form.get("seeds", "").split()}


def _host_settings(form: Form) -> dict[str, Any]:
    """Return the new settings of a host. An empty field removes an operator's setting."""
    try:
        delay, places = (form.get(name, "").strip() for name in ("delay_seconds", "places"))
        return {"delay_seconds": float(delay) if delay else None, "places": int(places) if places else None}
    except ValueError:
        raise InvalidInput("Delay and slots must be numbers.") from None


class PageAction(NamedTuple):
    path: str
    # The name of a route of the API.
    route: str = ""
    # Selects the message that `note_of` returns after the change.
    done: str = ""
    body: Callable[[Form], dict[str, Any] | None] = _no_body
    params: Callable[[Form], dict[str, Any]] = _nothing
    to: Callable[[dict[str, Any], dict[str, Any], str], str] = _to_crawl
    # Returns a part of a page and changes nothing, instead of calling a route.
    answer: Callable[[View, Form], Awaitable[str]] | None = None

    def following(self, params: dict[str, Any], result: dict[str, Any]) -> str:
        """The page to show after the change."""
        return self.to(params, result, self.done)


_CRAWL = "/crawls/{crawl}"
ACTIONS: tuple[PageAction, ...] = (
    PageAction(f"{_CRAWL}/pause", "post_crawls_crawl_pause", "paused"),
    PageAction(f"{_CRAWL}/resume", "post_crawls_crawl_resume", "resumed"),
    PageAction(f"{_CRAWL}/stop", "post_crawls_crawl_stop", "stopped"),
    PageAction(f"{_CRAWL}/delete", "delete_crawls_crawl", "deleted", to=_to_crawls),
    PageAction(f"{_CRAWL}/retry", "post_crawls_crawl_retry", "retried", body=_nothing),
    PageAction(f"{_CRAWL}/retry/chosen", "post_crawls_crawl_retry", "retried", body=_chosen, to=_to_failed),
    PageAction(
        f"{_CRAWL}/retry/reason",
        "post_crawls_crawl_retry",
        "retried",
        to=_to_failed,
        body=_reason,
    ),
    PageAction(f"{_CRAWL}/change", "patch_crawls_crawl", "changed", body=change_of),
    PageAction(f"{_CRAWL}/seeds", "post_crawls_crawl_seeds", "seeded", body=_seeds),
    PageAction(f"{_CRAWL}/forget", "post_crawls_crawl_forget", "forgotten", body=_url, params=_of_url, to=_to_url),
    PageAction(f"{_CRAWL}/revisit", "post_crawls_crawl_revisit", "revisited", body=_url, params=_of_url, to=_to_url),
    PageAction("/hosts/{host}/set", "patch_hosts_host", "set", body=_host_settings, to=_to_host),
    PageAction(
        "/hosts/{host}/block", "patch_hosts_host", "blocked", body=lambda form: {"blocked": "blocked"}, to=_to_host
    ),
    PageAction(
        "/hosts/{host}/unblock", "patch_hosts_host", "unblocked", body=lambda form: {"blocked": ""}, to=_to_host
    ),
    PageAction("/new/start", "post_crawls", "started", body=request_of, to=_to_new_crawl),
    PageAction("/new/check", answer=check_request),
)

_NOTES = {
    "paused": "The crawl is paused. Open requests may finish.",
    "resumed": "The crawl is resumed.",
    "stopped": "The crawl is stopped.",
    "forgotten": "The crawl has forgotten this URL, and will visit it when a page or a seed leads to it again.",
    "revisited": "The URL will be visited as soon as its host allows it.",
    "deleted": "The crawl is deleted.",
    "retried": "{n} failed URL{s} will be tried again.",
    "seeded": "Added {n} new URL{s}.",
    "changed": "The settings of the crawl were changed.",
    "set": "The settings of the host were changed.",
    "blocked": "The host is blocked: it gets no more requests.",
    "unblocked": "The host may be requested again; its failures and back-off are reset.",
    "started": "The crawl was submitted. Workers start it as soon as they are free.",
}


def note_of(done: str, count: str) -> str:
    """Return the message about a change that was made; '' if there is none."""
    n = int(count) if count.isascii() and count.isdigit() and len(count) < 13 else 0
    return _NOTES.get(done, "").format(n=f"{n:,}", s="" if n == 1 else "s")
