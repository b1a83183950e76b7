"""The reader: what a page is worth, read by Shoal itself or by the crawl's spider, and how its visit has ended."""

from __future__ import annotations

import contextlib
from functools import partial

import msgspec

from shoal.errors import CrawlEnded, InvalidInput, StoreHeld, StoreUnavailable
from shoal.model.response import Page
from shoal.model.visit import Visit
from shoal.urls.canonical import Target
from shoal.worker import reading, sitemaps
from shoal.worker.blame import Blame, Blamed
from shoal.worker.conduct import Conduct, Conducts
from shoal.worker.finished import Finished
from shoal.worker.hold import Hold
from shoal.worker.spiders import Run, SpiderFailed, Spiders


class Reader:
    def __init__(self, spiders: Spiders, conducts: Conducts, blame: Blame, worker: str) -> None:
        self._spiders = spiders
        self._conducts = conducts
        self._blame = blame
        self._worker = worker

    async def read(self, hold: Hold, visit: Visit, target: Target, conduct: Conduct, page: Page) -> Finished:
        """Whatever a page does to us or to a spider, it does to itself alone."""
        try:
            # A sitemap is read for its spider, not by it.
            if conduct.spider and "sitemap" not in visit.meta:
                run = self._blamed(hold, visit)
                found = await reading.read_by(self._spiders, page, visit, target, conduct, self._worker, run)
                visits = [*found.visits, *await self._branches(conduct, found.elsewhere)]
            else:
                self._blame.note(hold.lease.token, visit.number)
                try:
                    found = reading.read(page, visit, target, conduct, self._worker)
                finally:
                    self._blame.clear()
                visits = found.visits
        except (StoreUnavailable, StoreHeld):
            raise
        except SpiderFailed as error:
            finished = await self.give_up(hold, visit, conduct, error.reason, page, page.started_at)
            if finished.record is not None and error.trace:
                # The reason is counted, so it is short; whoever wrote the spider wants to know more.
                whole = msgspec.structs.replace(finished.record, error=f"{error.reason}\n{error.trace}")
                finished = finished._replace(record=whole)
            return finished
        except Exception as error:
            reason = f"reading: {type(error).__name__}"
            return await self.give_up(hold, visit, conduct, reason, page, page.started_at)
        if found.trouble:
            return await self.give_up(hold, visit, conduct, found.trouble, page, page.started_at)
        return Finished(hold, visit, visit.stored(), found.record, visits, conduct, found.items, size=found.size)

    async def _branches(self, conduct: Conduct, elsewhere: dict[str, list[Visit]]) -> list[Visit]:
        """Visits for other spiders, each with the name of the branch it waits in."""
        visits: list[Visit] = []
        for spider, some in elsewhere.items():
            if conduct.lane:
                # Nobody else can have it.
                self._spiders.check_has(spider)
            try:
                there = await self._conducts.branch(conduct, spider)
            except CrawlEnded:
                continue
            except InvalidInput as error:
                raise SpiderFailed("spider: no branch", str(error)) from error
            visits += [msgspec.structs.replace(visit, crawl=there.crawl.id) for visit in some]
        return visits

    async def give_up(
        self, hold: Hold, visit: Visit, conduct: Conduct, reason: str, page: Page | None, at: float
    ) -> Finished:
        """Failed, and its spider is told."""
        if visit.meta.get("guess"):
            # Nobody has said that there is one.
            return Finished(hold, visit, visit.excluded(sitemaps.NONE))
        finished = self.failed(hold, visit, conduct, reason, page, at)
        if conduct.spider:
            run = self._blamed(hold, visit)
            # What the spider makes of that is its own affair: the URL has failed either way.
            with contextlib.suppress(SpiderFailed):
                yielded = await self._spiders.failed(conduct.spider, conduct.name, visit.url, reason, at, run)
                finished = finished._replace(items=yielded.items, size=yielded.size)
        return finished

    def failed(self, hold: Hold, visit: Visit, conduct: Conduct, reason: str, page: Page | None, at: float) -> Finished:
        record = reading.failed(visit, conduct, self._worker, reason, page, at)
        return Finished(hold, visit, visit.failed(reason), record, [], conduct)

    def _blamed(self, hold: Hold, visit: Visit) -> Run:
        return partial(Blamed, blame=self._blame, token=hold.lease.token, number=visit.number)
