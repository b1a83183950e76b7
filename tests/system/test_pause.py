"""A pause also holds back the visits that workers have leased before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.responses import page
from tests.system.crawls import open_crawls

pytestmark = pytest.mark.full


def test_visits_leased_before_a_pause_wait_until_the_crawl_is_resumed(tmp_path: Path) -> None:
    with open_crawls(tmp_path, hosts=2, workers=1, settings={"frontier.batch_seconds": 60}) as crawls:
        (host,) = crawls.site.take()
        crawls.site.at(host, "/", page(*[f"/{number}" for number in range(12)]))
        crawls.site.at(host, "*", page())
        crawl = crawls.begin(f"http://{host}/", delay_seconds=0.7)
        crawls.until(lambda: crawls.counts(crawl).leased >= 6, "a batch is leased")
        crawls.do(crawls.frontier.crawls.pause(crawl))
        leased = crawls.counts(crawl).leased
        crawls.until(lambda: crawls.counts(crawl).leased == 0, "the batch is returned")
        counts = crawls.counts(crawl)
        # One may have been open, and the worker looks once a second.
        assert counts.waiting >= 12 - (counts.stored - 1) > 0
        assert counts.waiting >= leased - 3
        crawls.do(crawls.frontier.crawls.resume(crawl))
        assert crawls.finish(crawl, host).counts.stored == 13
        assert crawls.site.judge(host).times(f"http://{host}/3") == 1
