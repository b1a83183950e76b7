"""A queue and dupefilter of scrapy-redis are moved by one run, and no pickle in them can run code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import scrapy

from shoal.errors import InvalidInput
from shoal.scrapy.import_scrapy_redis import read_request
from tests.scrapy.processes import needs_scrapy_redis, project
from tests.servers import server
from tests.site.site import serving

pytestmark = pytest.mark.full


class Spider(scrapy.Spider):
    name = "tree"

    def page(self, response: Any) -> None: ...


class _Acts:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("acted",)


@pytest.mark.parametrize(
    "thing",
    [
        _Acts(), {"url": "http://h/", "meta": {"a": _Acts()}}, {"url": "http://h/", "_class": "os.system"},
        {"url": "http://h/", "callback": "no_such"}, [], 7,
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_a_pickle_that_is_not_a_request_is_refused_and_does_nothing(
    thing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput):
        read_request(pickle.dumps(thing), Spider())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["PriorityQueue", "FifoQueue"])
def test_shoal_makes_the_waiting_requests_of_scrapy_redis_and_not_the_finished_ones(kind: str, tmp_path: Path) -> None:
    needs_scrapy_redis()
    import redis
    from scrapy_redis import queue
    from scrapy_redis.dupefilter import RFPDupeFilter

    with (
        serving(tmp_path / "site", hosts=1) as site,
        server(tmp_path / "store") as store,
        project(tmp_path / "project", REDIS_URL=store.url, SHOAL_DRAIN=1) as here,
    ):
        tree = site.plant(30, site.take(1), alike=0)
        spider = Spider()
        client = redis.Redis(port=store.port)
        theirs = getattr(queue, kind)(client, spider, "tree:requests")
        seen = RFPDupeFilter(client, "tree:dupefilter")
        # It has made 0 and 1, and had 2 and 3 waiting.
        for number in range(4):
            request = scrapy.Request(tree.url(number), callback=spider.page, meta={"depth": 1})
            assert not seen.request_seen(request)
            if number > 1:
                theirs.push(request)
        (process,) = here.crawl("tree", start=tree.url(9))
        assert "Imported 2 requests from scrapy-redis into the frontier" in process.output()
        below: set[int] = set()
        todo = [2, 3, 9]
        while todo:
            below.add(page := todo.pop())
            todo += [link for link in tree.links(page) if link not in below]
        assert set(here.keys()) == {tree.url(page) for page in below}
        assert store.ask("EXISTS", "tree:requests") == 0
