"""The judge sees what it is there for."""

from __future__ import annotations

import pytest

from tests.site.judge import Judge
from tests.site.log import Request


def request(path: str, began: float, ended: float, host: str = "a:1") -> Request:
    return Request(host=host, address=host, method="GET", path=path, headers={}, began=began, ended=ended)


def test_requests_that_are_open_at_once_are_an_overlap_on_one_host_and_none_on_two() -> None:
    assert Judge([request("/1", 1, 2), request("/2", 1.5, 3)]).crowded()
    assert not Judge([request("/1", 1, 2), request("/2", 1.5, 3, "b:1")]).crowded()
    assert not Judge([request("/1", 1, 2), request("/2", 2, 3)]).crowded()


def test_more_places_allow_more_open_requests_and_no_more() -> None:
    three = [request("/1", 1, 9), request("/2", 2, 3), request("/3", 4, 8), request("/4", 5, 6)]
    assert not Judge(three[:3]).crowded(places=2)
    assert Judge(three).crowded(places=2)


def test_a_request_that_never_ended_overlaps_with_all_that_follow() -> None:
    assert Judge([request("/1", 1, float("inf")), request("/2", 50, 51)]).crowded()


@pytest.mark.parametrize(("began", "wrong"), [(2.299, 1), (2.3, 0), (2.9, 0)])
def test_the_gap_counts_from_the_end_of_the_request_before(began: float, wrong: int) -> None:
    judge = Judge([request("/1", 1, 2), request("/2", began, 3)])
    assert len(judge.hasty(0.3)) == wrong
    assert len(judge.hasty({"a:1": 0.3})) == wrong
    assert not judge.hasty({"b:1": 0.3})


def test_the_gap_counts_from_the_last_end_when_a_short_request_lies_within_a_long_one() -> None:
    assert Judge([request("/1", 1, 5), request("/2", 2, 3), request("/3", 5.1, 6)]).gaps("a:1")[-1] == pytest.approx(
        0.1
    )


def test_a_page_before_the_answer_to_robots_txt_is_noticed() -> None:
    first = request("/robots.txt", 1, 2)
    assert not Judge([first, request("/1", 2, 3)]).unannounced()
    assert Judge([first, request("/1", 1.5, 3)]).unannounced()
    assert Judge([request("/1", 0, 0.5), first]).unannounced()


def test_forbidden_and_repeated_requests_are_named() -> None:
    judge = Judge([request("/robots.txt", 1, 2), request("/private", 2, 3), request("/private", 3, 4)])
    assert len(judge.forbidden(lambda _host, path: path != "/private")) == 2
    assert not judge.forbidden(lambda _host, path: path == "/private")
    assert judge.repeated() == {"http://a:1/private": 2}
