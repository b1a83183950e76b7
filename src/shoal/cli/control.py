"""How commands read and change crawls and hosts: one interface, for a store or an HTTP API.

Commands render what a Control returns; they do not know which of the two it is. The API side is in remote.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from shoal.settings import Settings

if TYPE_CHECKING:
    from shoal.frontier import Frontier
    from shoal.model.crawl import Crawl
    from shoal.operations import Description
    from shoal.operations.change import ChangedCrawl
    from shoal.operations.explain import Explanation
    from shoal.operations.touch import Touched

_PAGE = 1000
_STORE_TIMEOUT_SECONDS = 5.0
_HOSTS_AT_ONCE = 200


class CrawlRow(NamedTuple):
    """One line of `shoal crawls`."""

    id: str
    state: str
    stored: int
    remaining: int
    created_at: float


class Control(AbstractContextManager["Control"], Protocol):
    """A host is a dict of its fields, as in GET /v1/hosts."""

    def crawls(self) -> list[CrawlRow]:
        """All crawls, the oldest first."""

    def describe(self, crawl: str) -> Description: ...

    def explain(self, crawl: str, url: str) -> Explanation:
        """Whether a URL is visited, and why."""

    def change(self, crawl: str, verb: str) -> tuple[str, str]:
        """Pause, resume, stop or delete a crawl. Returns its new state and a hint, '' if there is none."""

    def change_options(self, crawl: str, options: dict[str, Any], *, preview: bool) -> ChangedCrawl: ...

    def touch(self, crawl: str, urls: Sequence[str]) -> Touched: ...

    def failed(self, crawl: str) -> Iterator[tuple[str, str]]:
        """Reason and URL of each failed visit."""

    def retry(self, crawl: str, *, urls: Sequence[str] | None = None, reason: str = "") -> tuple[int, str]:
        """Retry failed URLs. Returns how many, and the command that resumes the crawl, '' if not needed."""

    def forget(self, crawl: str, urls: Sequence[str]) -> int:
        """Forget that the crawl has seen these URLs. Returns how many it had seen."""

    def revisit(self, crawl: str, urls: Sequence[str]) -> tuple[int, str]:
        """Visit these URLs again. Returns how many, and the command that resumes the crawl, '' if not needed."""

    def hosts(self) -> Iterator[dict[str, Any]]:
        """Hosts with waiting URLs; `waiting` is the number of these URLs."""

    def host(self, name: str) -> dict[str, Any]: ...

    def change_host(self, name: str, changes: dict[str, Any]) -> dict[str, Any]: ...


def open_control(store: str | None, folder: str | None) -> Control:
    """Open the store or the API that the flags and settings name. A store is not created."""
    import msgspec

    from shoal.cli.options import existing
    from shoal.cli.remote import ApiControl, client_of
    from shoal.settings import masked

    if client := client_of(store):
        return ApiControl(client)
    flags = {"store.url": masked(store or ""), "store.folder": folder or ""}
    settings = existing(store, folder)
    # A user waits for the result, and nothing is lost if the command fails early.
    timeout_seconds = min(settings.store.timeout_seconds, _STORE_TIMEOUT_SECONDS)
    store_settings = msgspec.structs.replace(settings.store, timeout_seconds=timeout_seconds)
    settings = msgspec.structs.replace(settings, store=store_settings)
    return StoreControl(settings, {key: value for key, value in flags.items() if value})


class StoreControl:
    """A Control on a store. `flags` are the store flags of the command, for commands that it suggests."""

    def __init__(self, settings: Settings, flags: dict[str, str]) -> None:
        self._settings = settings
        self._flags = flags

    def __enter__(self) -> Self:
        from shoal.cli.ui.console import warn
        from shoal.frontier import Frontier

        self._runner = asyncio.Runner()
        try:
            self._frontier: Frontier = self._runner.run(Frontier.from_settings(self._settings, on_warning=warn))
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._runner.run(self._frontier.close())
        finally:
            self._runner.close()

    def crawls(self) -> list[CrawlRow]:
        return self._runner.run(self._crawls())

    async def _crawls(self) -> list[CrawlRow]:
        from shoal.model.crawl import CrawlKind

        rows = []
        async for crawl in self._frontier.crawls.all():
            # A branch is counted with its crawl.
            if crawl.kind is not CrawlKind.BRANCH:
                counts = await self._frontier.crawls.count(crawl.id)
                rows.append(CrawlRow(crawl.id, crawl.state.value, counts.stored, counts.open, crawl.created_at))
        return sorted(rows, key=lambda row: row.created_at)

    def describe(self, crawl: str) -> Description:
        return self._runner.run(self._describe(crawl))

    async def _describe(self, crawl: str) -> Description:
        from shoal.operations.describe import describe, find

        return await describe(self._frontier, await find(self._frontier, crawl))

    def explain(self, crawl: str, url: str) -> Explanation:
        from shoal.operations.explain import explain_by_id

        return self._runner.run(explain_by_id(self._frontier, crawl, url))

    def change(self, crawl: str, verb: str) -> tuple[str, str]:
        return self._runner.run(self._change(crawl, verb))

    async def _change(self, name: str, verb: str) -> tuple[str, str]:
        from shoal.operations import crawls

        if verb == "delete":
            await crawls.delete(self._frontier, name)
            return "deleted", ""
        if verb == "resume":
            state = (await crawls.resume(self._frontier, name)).state.value
        else:
            state = (await getattr(self._frontier.crawls, verb)(name)).state.value
        if verb != "resume" or await self._frontier.workers.alive():
            return state, ""
        command = await self._resume_command(name)
        return state, f"No worker is connected to the store; start workers with `{command}` or `shoal worker`."

    def change_options(self, crawl: str, options: dict[str, Any], *, preview: bool) -> ChangedCrawl:
        from shoal.operations.change import change

        return self._runner.run(change(self._frontier, crawl, options, preview=preview))

    def touch(self, crawl: str, urls: Sequence[str]) -> Touched:
        return self._runner.run(self._touch(crawl, urls))

    async def _touch(self, crawl: str, urls: Sequence[str]) -> Touched:
        from shoal.operations.touch import touch

        return await touch(self._frontier, await self._frontier.crawls.get(crawl), urls)

    def failed(self, crawl: str) -> Iterator[tuple[str, str]]:
        cursor = None
        while True:
            visits, cursor = self._runner.run(self._frontier.crawls.failed_page(crawl, _PAGE, cursor))
            for visit, reason in visits:
                yield reason, visit.url
            if cursor is None:
                return

    def retry(self, crawl: str, *, urls: Sequence[str] | None = None, reason: str = "") -> tuple[int, str]:
        return self._runner.run(self._retry(crawl, urls, reason))

    async def _retry(self, crawl: str, urls: Sequence[str] | None, reason: str) -> tuple[int, str]:
        count = await self._frontier.crawls.retry(crawl, urls=urls, reason=reason)
        # Without URLs or a reason, a finished crawl runs again even if no URL is retried.
        return count, await self._resume_command(crawl) if count or not (urls or reason) else ""

    def forget(self, crawl: str, urls: Sequence[str]) -> int:
        return self._runner.run(self._forget(crawl, urls))

    async def _forget(self, crawl: str, urls: Sequence[str]) -> int:
        from shoal.operations import known_urls
        from shoal.operations.describe import find

        return await known_urls.forget(self._frontier, await find(self._frontier, crawl), urls)

    def revisit(self, crawl: str, urls: Sequence[str]) -> tuple[int, str]:
        return self._runner.run(self._revisit(crawl, urls))

    async def _revisit(self, crawl_id: str, urls: Sequence[str]) -> tuple[int, str]:
        from shoal.operations import known_urls
        from shoal.operations.describe import find

        crawl = await find(self._frontier, crawl_id)
        count = await known_urls.revisit(self._frontier, crawl, urls, named=self._settings.outputs)
        return count, "" if await self._frontier.workers.alive() else await self._resume_command(crawl_id)

    async def _resume_command(self, crawl_id: str) -> str:
        from shoal.cli.spider_choice import spider_flag
        from shoal.cli.ui.summary import resume_command
        from shoal.model.crawl import CrawlKind

        crawl = await self._frontier.crawls.get(crawl_id)
        if crawl.kind is CrawlKind.SCRAPY:
            arguments = "".join(f" -a {name}=..." for name in crawl.spec.get("scrapy_arguments", ()))
            return f"scrapy crawl {crawl.spec.get('scrapy_spider', crawl.spec['scrapy'])}{arguments}"
        flags = dict(self._flags)
        if networks := crawl.spec.get("networks"):
            flags["fetch.allow_networks"] = ",".join(networks)
        return resume_command(crawl_id, "crawl", flags, spider_flag(crawl.limits.spider, self._settings))

    def hosts(self) -> Iterator[dict[str, Any]]:
        from shoal.frontier.inspect import waiting_hosts
        from shoal.model.crawl import State

        crawls = self._runner.run(self._open_crawls())
        paused = [crawl.key for crawl in crawls if crawl.state is State.PAUSED]
        spiders = {crawl.limits.spider for crawl in crawls}
        for shard in range(self._frontier.shards.count):
            names = self._runner.run(waiting_hosts(self._frontier, shard, spiders, paused))
            for start in range(0, len(names), _HOSTS_AT_ONCE):
                yield from self._runner.run(self._read_hosts(names[start : start + _HOSTS_AT_ONCE], paused))

    async def _open_crawls(self) -> list[Crawl]:
        return [crawl async for crawl in self._frontier.crawls.all() if crawl.state.open]

    async def _read_hosts(self, names: Sequence[str], paused: Collection[str]) -> list[dict[str, Any]]:
        """Read some hosts at the same time: each needs several calls to the store."""
        import msgspec

        from shoal.frontier.inspect import waiting

        async def read(name: str) -> dict[str, Any]:
            queues, host = await asyncio.gather(
                waiting(self._frontier, name, paused), self._frontier.hosts.get(name)
            )  # fmt: skip
            return {**msgspec.structs.asdict(host), "waiting": sum(sum(queue.values()) for queue in queues.values())}

        return await asyncio.gather(*map(read, names))

    def host(self, name: str) -> dict[str, Any]:
        return self.change_host(name, {})

    def change_host(self, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        return self._runner.run(self._change_host(name, changes))

    async def _change_host(self, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        import msgspec

        hosts = self._frontier.hosts
        if "delay_seconds" in changes:
            await hosts.set_delay(name, changes["delay_seconds"])
        if "blocked" in changes:
            await (hosts.block(name) if changes["blocked"] else hosts.unblock(name))
        return msgspec.structs.asdict(await hosts.get(name))
