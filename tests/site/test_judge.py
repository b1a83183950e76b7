"""The judge sees what it is there for."""

from __future__ import annotations

import pytest

from tests.site.judge import Judge
from tests.site.log import Request


def request(path: str, began: float, ended: float, host: str = "a:1") -> Request:
    return Request(host=host, address=host, method="GET", path=path, headers={}, began=began, ended=ended)


def test_concurrent_requests_are_an_overlap_on_one_host_and_not_on_two() -> None:
    assert Judge([request("/1", 1, 2), request("/2", 1.5, 3)]).crowded()
    assert not Judge([request("/1", 1, 2), request("/2", 1.5, 3, "b:1")]).crowded()
    assert not Judge([request("/1", 1, 2), request("/2", 2, 3)]).crowded()


def test_more_slots_allow_exactly_as_many_open_requests() -> None:
    three = [request("/1", 1, 9), request("/2", 2, 3), request("/3", 4, 8), request("/4", 5, 6)]
    assert not Judge(three[:3]).crowded(places=2)
    assert Judge(three).crowded(places=2)


def test_a_request_that_never_ended_overlaps_with_all_later_ones() -> None:
    assert Judge([request("/1", 1, float("inf")), request("/2", 50, 51)]).crowded()


@pytest.mark.parametrize(("began", "wrong"), [(2.299, 1), (2.3, 0), (2.9, 0)])
def test_the_delay_counts_from_the_end_of_the_previous_request(began: float, wrong: int) -> None:
    judge = Judge([request("/1", 1, 2), request("/2", began, 3)])
    assert len(judge.hasty(0.3)) == wrong
    assert len(judge.hasty({"a:1": 0.3})) == wrong
    assert not judge.hasty({"b:1": 0.3})


def test_the_delay_counts_from_the_later_end_of_two_overlapping_requests() -> None:
    assert Judge([request("/1", 1, 5), request("/2", 2, 3), request("/3", 5.1, 6)]).gaps("a:1")[-1] == pytest.approx(
        0.1
    )


def test_a_page_before_the_response_to_robots_txt_is_detected() -> None:
    first = request("/robots.txt", 1, 2)
    assert not Judge([first, request("/1", 2, 3)]).unannounced()
    assert Judge([first, request("/1", 1.5, 3)]).unannounced()
    assert Judge([request("/1", 0, 0.5), first]).unannounced()


def test_forbidden_and_repeated_requests_are_reported() -> None:
    judge = Judge([request("/robots.txt", 1, 2), request("/private", 2, 3), request("/private", 3, 4)])
    assert len(judge.forbidden(lambda _host, path: path != "/private")) == 2
    assert not judge.forbidden(lambda _host, path: path == "/private")
    assert judge.repeated() == {"http://a:1/private": 2}
