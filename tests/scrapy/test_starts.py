"""Start URLs and items in Redis, by scrapy-redis' names, for its spiders and for ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scrapy.processes import Project, needs_scrapy_redis, project
from tests.servers import Server, server, wait_until
from tests.site.responses import page
from tests.site.site import Site

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("store")) as valkey:
        yield valkey


@pytest.fixture
def here(store: Server, tmp_path: Path) -> Iterator[Project]:
    store.ask("FLUSHALL")
    with project(
        tmp_path / "project", REDIS_HOST="127.0.0.1", REDIS_PORT=store.port, MAX_IDLE_TIME_BEFORE_CLOSE=1
    ) as opened:
        yield opened


def test_start_urls_of_every_form_become_requests(site: Site, store: Server, here: Project) -> None:
    host = site.take(1)[0]
    site.at(host, "*", page())
    base = f"http://{host}"
    whole = {
        "url": f"{base}/json", "method": "PUT", "body": "some", "headers": {"X-Tag": "h"}, "cookies": {"c": "1"},
        "meta": {"tag": "m"}, "priority": 7,
    }  # fmt: skip
    form = {"url": f"{base}/form", "method": "POST", "field": "value"}
    messages = [f"{base}/plain", json.dumps(whole), json.dumps(form), "{not json and no url", json.dumps({"no": "url"})]
    store.ask("RPUSH", "feeding:start_urls", *messages)
    output = here.crawl("feeding")[0].output()
    items = {item["key"].removeprefix(base): item for item in here.items()}
    assert items.keys() == {"/plain", "/json", "/form"}
    assert items["/plain"]["method"] == "GET"
    assert items["/json"] == {
        "key": f"{base}/json", "method": "PUT", "body": "some", "meta": "m", "header": "h", "cookies": "c=1",
        "priority": 7,
    }  # fmt: skip
    assert (items["/form"]["method"], items["/form"]["body"]) == ("POST", "field=value")
    assert store.ask("LLEN", "feeding:start_urls") == 0
    assert "cannot handle the start URL '{not json and no url'" in output
    assert b"{not json and no url" in store.ask("LRANGE", "feeding:start_urls:dead", 0, -1)
    assert "has no url" in output


def test_a_url_that_is_pushed_again_is_visited_again(site: Site, store: Server, here: Project) -> None:
    host = site.take(1)[0]
    url = site.at(host, "/", page())
    process = here.start("feeding", settings={"REDIS_START_URLS_AS_ZSET": 1, "MAX_IDLE_TIME_BEFORE_CLOSE": 3})
    for times in (1, 2):
        store.ask("ZADD", "feeding:start_urls", 5, url)
        wait_until(lambda: here.keys()[url] == times, f"visited {times} times")  # noqa: B023
    process.end()
    assert here.keys() == {url: 2}


def test_start_urls_are_read_while_the_spider_is_busy(site: Site, store: Server, here: Project) -> None:
    slow, fresh = site.take(2)
    tree = site.plant(400, [slow], alike=0)
    url = site.at(fresh, "/", page())
    process = here.start("tree_from_redis", settings={"DOWNLOAD_DELAY": 0.1})
    store.ask("RPUSH", "trees", tree.url(0))
    here.wait_for_items(3)
    store.ask("RPUSH", "trees:more", url)
    wait_until(lambda: here.keys()[url] == 1, "the second host's page, while the first is at work")
    assert len(here.keys()) < 300
    process.kill()


def test_a_spider_written_for_scrapy_redis_runs_unchanged_on_the_oldest_scrapy(
    oldest: str, site: Site, store: Server, here: Project
) -> None:
    needs_scrapy_redis()
    here.scrapy = oldest
    tree = site.plant(40, site.take(2))
    started = [here.start("written_for_scrapy_redis") for _ in range(2)]
    for process in started:
        wait_until(lambda: "Spider opened" in process.output(), "both are there")  # noqa: B023
    store.ask("LPUSH", "written:urls", tree.url(0))
    for process in started:
        process.end()
    assert set(here.keys()) == tree.walk()
    assert sum(here.keys().values()) == 41
    assert {item["key"] for item in here.items() if item["pushed"]} == {tree.url(0)}
    assert all("Traceback" not in process.output() for process in started)


@pytest.mark.smoke
def test_items_and_statistics_go_to_redis_under_scrapy_redis_keys(site: Site, store: Server, here: Project) -> None:
    tree = site.plant(10, site.take(1))
    settings = {
        "REDIS_ITEMS_KEY": "%(spider)s:found",
        "STATS_CLASS": "shoal.scrapy.RedisStatsCollector",
        "SCHEDULER_PERSIST": 1,
    }
    here.crawl("into_redis", count=2, settings=settings, start=tree.url(0))
    items = [json.loads(line) for line in store.ask("LRANGE", "into_redis:found", 0, -1)]
    assert {item["key"] for item in items} == tree.walk()
    assert len(items) == 11
    flat = store.ask("HGETALL", "into_redis:stats")
    stats = dict(zip(flat[::2], flat[1::2], strict=True))
    assert stats[b"item_scraped_count"] == b"11"
    assert stats[b"scheduler/dequeued/redis"] == b"11"


def test_a_pipeline_that_overrides_scrapy_redis_method_is_called(site: Site, store: Server, here: Project) -> None:
    pytest.importorskip("redis")
    tree = site.plant(3, site.take(1), alike=0)
    pipelines = json.dumps({"tests.scrapy.pipelines.SetPipeline": 300})
    here.crawl("tree", settings={"ITEM_PIPELINES": pipelines}, start=tree.url(0))
    assert {member.decode() for member in store.ask("SMEMBERS", "tree:set")} == tree.walk()


def test_a_login_in_start_requests_is_sent_and_its_start_urls_are_visited_once(
    oldest: str, site: Site, store: Server, here: Project
) -> None:
    needs_scrapy_redis()
    here.scrapy = oldest
    host = site.take(1)[0]
    site.at(host, "*", page())
    urls = [f"http://{host}/{number}" for number in range(3)]
    store.ask("RPUSH", "logging_in:urls", *urls)
    here.crawl("logging_in", settings={"LOGIN": f"http://{host}/login"})
    assert here.keys() == {"logged in": 1, **dict.fromkeys(urls, 1)}


def test_fields_of_a_message_without_a_method_become_a_query(site: Site, store: Server, here: Project) -> None:
    host = site.take(1)[0]
    site.at(host, "*", page())
    store.ask("RPUSH", "feeding:start_urls", json.dumps({"url": f"http://{host}/list", "page": "2"}))
    here.crawl("feeding")
    assert [(item["key"], item["method"], item["body"]) for item in here.items()] == [
        (f"http://{host}/list?page=2", "GET", "")
    ]


def test_a_key_of_another_type_is_reported_with_the_setting(store: Server, here: Project) -> None:
    store.ask("RPUSH", "feeding:start_urls", "http://127.0.0.1/")
    output = here.crawl("feeding", settings={"REDIS_START_URLS_AS_SET": 1})[0].output()
    assert (
        "Cannot read start URLs: 'feeding:start_urls' is a list, but is read as a set because "
        "REDIS_START_URLS_AS_SET is set." in output
    )
    assert store.ask("LLEN", "feeding:start_urls") == 1


def test_only_counters_of_several_runs_are_added_up(site: Site, store: Server, here: Project) -> None:
    host = site.take(1)[0]
    site.at(host, "/deep", page())
    site.at(host, "/deeper", page("/deep"))
    url = site.at(host, "/", page("/deeper"))
    seen = []
    for _ in range(2):
        settings = {"STATS_CLASS": "shoal.scrapy.RedisStatsCollector", "SCHEDULER_PERSIST": 1}
        here.crawl("into_redis", settings={**settings, "SCHEDULER_FLUSH_ON_START": 1}, start=url)
        flat = store.ask("HGETALL", "into_redis:stats")
        seen.append({name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)})
    first, second = seen
    assert (first["item_scraped_count"], second["item_scraped_count"]) == ("3", "6")
    assert (first["request_depth_max"], second["request_depth_max"]) == ("2", "2")
    assert int(first["memusage/max"]) <= int(second["memusage/max"]) < 1.5 * int(first["memusage/max"])
    assert int(second["memusage/startup"]) < 1.5 * int(first["memusage/startup"])
    assert float(second["start_time"]) > float(first["start_time"])


def test_a_spider_can_use_the_server_itself(site: Site, store: Server, here: Project) -> None:
    host = site.take(1)[0]
    url = site.at(host, "/", page())
    store.ask("RPUSH", "using_server:start_urls", url)
    here.crawl("using_server")
    assert store.ask("LRANGE", "using_server:done", 0, -1) == [url.encode()]
    assert store.ask("GET", "using_server:began") == b"1"


def test_statistics_of_all_processes_are_read_and_removed_by_the_last_one(
    site: Site, store: Server, here: Project
) -> None:
    """Both processes wait for a count that neither reaches alone."""
    tree = site.plant(12, site.take(2))
    settings = {"STATS_CLASS": "shoal.scrapy.RedisStatsCollector", "CONCURRENT_REQUESTS": 1}
    here.crawl("counting", count=2, settings=settings, start=tree.url(0))
    totals = [item["total"] for item in here.items() if "total" in item]
    assert totals == [2, 2]
    assert store.ask("EXISTS", "counting:stats") == 0
