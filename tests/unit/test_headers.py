"""Headers that users set: none that frames a request or names its host, and to the hosts of the seeds only."""

from __future__ import annotations

import logging

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from shoal.errors import InvalidLimit, InvalidVisit
from shoal.frontier.visit_codec import pack
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.validation import REFUSED_HEADERS
from shoal.model.visit import Visit
from shoal.operations.submit import parse, to_submission
from shoal.scrapy.cookies import Cookies
from shoal.scrapy.request_identity import RequestIdentity
from shoal.urls.canonical import canonical
from shoal.worker.crawl_context import CrawlContext

URL = "https://a.example/"
NAMES = [*sorted(REFUSED_HEADERS), "Host", "TRANSFER-Encoding"]


@pytest.mark.parametrize("name", NAMES)
def test_a_header_that_frames_a_request_or_names_its_host_is_refused(name: str) -> None:
    request = parse({"seeds": [URL], "headers": {name: "200"}, "outputs": ["main"]})
    assert not isinstance(request, str)
    with pytest.raises(InvalidLimit, match=f"The header '{name}' is not allowed"):
        to_submission(request)  # type: ignore[arg-type]
    with pytest.raises(InvalidVisit, match="is not allowed"):
        pack(canonical(URL), Visit(url=URL, headers={name: "200"}))


@pytest.mark.parametrize("headers", [{"User-Agent": "x"}, {"user-agent": "x"}, {"X-A": "1", "x-a": "2"}, {"": "x"}])
def test_each_header_is_given_once_and_the_user_agent_by_its_option(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidLimit, match="header"):
        CrawlSpec(headers=headers).check()
    with pytest.raises(InvalidVisit):
        pack(canonical(URL), Visit(url=URL, headers=headers))


def test_such_headers_are_dropped_from_scrapy_requests_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    crawler = get_crawler()
    crawler.get_downloader_middleware = lambda _: None  # type: ignore[method-assign,assignment]
    identity = RequestIdentity(Spider("s"), None, Cookies(crawler))
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            request = Request(f"{URL}{number}", headers={"Host": "b.example", "Content-Length": "9", "X-Own": "1"})
            result = identity.visit(request)
            assert result is not None
            assert set(identity.request(result[0]).headers) == {b"X-Own"}
    assert [record.args for record in caplog.records] == [("Host",), ("Content-Length",)]


def test_custom_headers_are_sent_only_to_the_hosts_of_the_seeds_by_default() -> None:
    own = {"X-Key": "1", "Accept": "text/plain", "Authorization": "Basic x"}

    def sent(url: str, *, everywhere: bool = False) -> dict[str, str]:
        spec = CrawlSpec(seeds=(URL,), headers=own, headers_everywhere=everywhere)
        crawl = Crawl("c", "c", State.RUNNING, 1, spec.limits(), 0.0, spec=spec.stored())
        return dict(CrawlContext(crawl, {}, {}).headers(canonical(url)))

    assert own.items() <= sent(f"{URL}page").items()
    other = sent("https://b.example/")
    assert other.keys() == {"User-Agent", "Accept"}
    assert other["Accept"] != "text/plain"
    assert sent("https://b.example/", everywhere=True).keys() == {"User-Agent", "Accept", "X-Key"}
