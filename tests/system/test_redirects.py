"""Redirects: every hop is a separate visit, and the record of the final page has the chain."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.site.responses import Response, page, redirect, robots
from tests.system.crawls import Crawls, open_crawls


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("redirects"), hosts=80, workers=2) as opened:
        yield opened


def reason_of(crawls: Crawls, response: Response, **policy: Any) -> dict[str, int]:
    """The reasons of a crawl whose only link gets this response. The page with the link is stored."""
    (host,) = crawls.site.take()
    crawls.site.at(host, "/from", response)
    done = crawls.run(crawls.site.at(host, "/", page("/from")), **policy)
    assert done.judge.paths(host) == ["/robots.txt", "/", "/from"]
    assert done.counts.stored == 1
    return done.counts.reasons


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_every_kind_of_redirect_is_followed_and_named_in_the_chain(crawls: Crawls, status: int) -> None:
    (host,) = crawls.site.take()
    start = crawls.site.at(host, "/", redirect("/there", status))
    there = crawls.site.at(host, "/there", page(title="There"))
    done = crawls.run(start)
    assert set(done.rows) == {there}
    assert done.rows[there]["redirects"] == [[start, status]]
    assert done.rows[there]["found"] == "redirect"
    assert done.counts.reasons == {"excluded:redirect": 1}


@pytest.mark.parametrize("status", [300, 305, 306, 399])
def test_a_response_that_is_not_a_redirect_is_not_followed(crawls: Crawls, status: int) -> None:
    assert reason_of(crawls, redirect("/there", status)) == {f"failed:status {status}": 1}


def test_a_chain_over_hosts_requests_each_robots_txt_and_keeps_every_delay(crawls: Crawls) -> None:
    hosts = crawls.site.take(4)
    for here, there in pairwise(hosts):
        crawls.site.at(here, "/", redirect(f"http://{there}/"))
    last = crawls.site.at(hosts[-1], "/", page())
    done = crawls.run(f"http://{hosts[0]}/", hosts=tuple(hosts), scope="any", delay_seconds=0.2)
    assert done.rows[last]["redirects"] == [[f"http://{host}/", 302] for host in hosts[:-1]]
    assert done.rows[last]["depth"] == 0
    assert not done.judge.unannounced()
    assert not done.judge.impolite(0.2)


def test_a_seed_may_redirect_to_another_host_which_is_then_crawled(crawls: Crawls) -> None:
    bare, full = crawls.site.take(2)
    crawls.site.at(bare, "/", redirect(f"http://{full}/", 301))
    crawls.site.at(full, "/", page("/a"))
    crawls.site.at(full, "/a", page())
    done = crawls.run(f"http://{bare}/", hosts=(bare, full))
    assert set(done.rows) == {f"http://{full}/", f"http://{full}/a"}


def test_a_link_that_redirects_out_of_scope_is_excluded(crawls: Crawls) -> None:
    here, there = crawls.site.take(2)
    crawls.site.at(there, "/", page())
    crawls.site.at(here, "/a", redirect(f"http://{there}/"))
    done = crawls.run(crawls.site.at(here, "/", page("/a")), hosts=(here, there))
    assert done.judge.paths(there) == []
    assert done.counts.reasons == {"excluded:scope: other host": 1}


@pytest.mark.parametrize("cycle", [1, 2, 3])
def test_a_redirect_loop_ends_with_its_reason(crawls: Crawls, cycle: int) -> None:
    (host,) = crawls.site.take()
    for number in range(cycle):
        crawls.site.at(host, f"/{number}", redirect(f"/{(number + 1) % cycle}"))
    done = crawls.run(f"http://{host}/0")
    assert len(done.judge.paths(host)) == cycle + 1
    assert done.counts.reasons["failed:redirect loop"] == 1
    assert done.counts.failed == 1


def test_twenty_redirects_are_followed_and_the_next_one_is_not(crawls: Crawls) -> None:
    within, beyond = crawls.site.take(2)
    for host, hops in ((within, 20), (beyond, 21)):
        for number in range(hops):
            crawls.site.at(host, f"/{number}", redirect(f"/{number + 1}"))
        crawls.site.at(host, f"/{hops}", page(title="The end"))
    done = crawls.run(f"http://{within}/0", f"http://{beyond}/0", delay_seconds=0.0)
    assert len(done.rows[f"http://{within}/20"]["redirects"]) == 20
    assert f"http://{beyond}/21" not in done.judge.counts()
    assert done.counts.reasons["failed:too many redirects"] == 1
    assert done.rows[f"http://{beyond}/20"]["error"] == "too many redirects"


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_without_a_target_fails_with_its_reason(crawls: Crawls, status: int) -> None:
    assert reason_of(crawls, redirect(None, status)) == {"failed:redirect without location": 1}


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("there", "/folder/there"),
        ("../there", "/there"),
        ("?q=1", "/folder/from?q=1"),
        ("//HOST/there", "/there"),
        ("  /there  ", "/there"),
        ("/there#part", "/there"),
        ("\\there", "/there"),
        ("/tr\u00e4ger", "/tr%C3%A4ger"),
        ("/with space", "/with%20space"),
        ("/%7Efolder/", "/%7Efolder/"),
    ],
)
def test_a_location_is_resolved_as_browsers_do(crawls: Crawls, location: str, path: str) -> None:
    (host,) = crawls.site.take()
    # Servers that mean ä send its two bytes in UTF-8.
    raw = location.replace("HOST", host).encode().decode("latin-1")
    start = crawls.site.at(host, "/folder/from", redirect(raw))
    there = crawls.site.at(host, path, page(title="There"))
    done = crawls.run(start)
    assert set(done.rows) == {there}
    assert done.rows[there]["title"] == "There"


def test_at_most_the_first_of_two_locations_is_followed(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    response = Response(status=302, headers=(("Location", "/first"), ("Location", "/second")))
    crawls.site.at(host, "/first", page())
    crawls.site.at(host, "/second", page())
    done = crawls.run(crawls.site.at(host, "/", response), retries=0)
    assert done.judge.paths(host)[2:] in (["/first"], [])
    assert done.counts.stored + done.counts.failed == 1


@pytest.mark.parametrize("location", ["/a%0d%0aX-Evil:%201", "/a\rX-Evil: 1", "/a\r\n\tX-Evil: 1"])
def test_a_line_break_in_a_location_does_not_inject_a_header(crawls: Crawls, location: str) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "*", page())
    done = crawls.run(crawls.site.at(host, "/", redirect(location)), retries=0)
    assert not [request for request in done.judge.requests if "x-evil" in request.headers]
    assert done.counts.stored + done.counts.failed == 1


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "gopher://127.0.0.1:70/_x", "javascript:alert(1)", "data:text/html,x", "dict://127.0.0.1:1/",
     "http://", "http://[::1", "http://a:99999/", "mailto:a@b.example", "http://exa mple/", "smb://127.0.0.1/x"],
)  # fmt: skip
def test_a_redirect_to_another_scheme_fails_with_its_reason(crawls: Crawls, location: str) -> None:
    assert reason_of(crawls, redirect(location), scope="any") == {"failed:invalid redirect target": 1}


def test_a_redirect_to_a_forbidden_address_opens_no_connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Only the site's own first addresses are allowed here, so that a listener on another one stands for a private net.
    settings: dict[str, object] = {"fetch.allow_networks": "127.0.1.0/24"}
    with (
        open_crawls(tmp_path_factory.mktemp("inside"), hosts=3, settings=settings) as inside,
        socket.create_server(("127.0.9.9", 0)) as listener,
    ):
        (host,) = inside.site.take()
        port = listener.getsockname()[1]
        spellings = [f"127.0.9.9:{port}", f"0x7f.0.9.9:{port}", f"2130708745:{port}", f"[::ffff:127.0.9.9]:{port}"]
        for number, there in enumerate(spellings):
            inside.site.at(host, f"/{number}", redirect(f"http://{there}/"))
        inside.site.at(host, "/4", redirect("http://169.254.169.254/latest/meta-data/"))
        start = inside.site.at(host, "/", page(*(f"/{number}" for number in range(5))))
        done = inside.run(start, scope="any")
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.accept()
        failed = {url: row["error"] for url, row in done.rows.items() if row["error"]}
        assert failed, done.counts
        assert all("address" in error for error in failed.values()), failed
        assert done.counts.stored == 1


def test_cookies_and_passwords_are_dropped_at_a_redirect_to_another_origin(crawls: Crawls) -> None:
    here, there = crawls.site.take(2)
    crawls.site.at(here, "/", redirect("/mine"))
    crawls.site.at(here, "/mine", redirect(f"http://{there}/"))
    crawls.site.at(there, "/", page(f"http://{here}/back"))
    crawls.site.at(here, "/back", page())
    done = crawls.run(
        f"http://{here}/", hosts=(here, there), scope="any", cookie="session=secret", auth="user:secret",
        headers={"X-Ours": "yes"},
    )  # fmt: skip
    pages = [request for request in done.judge.requests if not request.is_robots]
    assert {page.path for page in pages if page.host == here} == {"/", "/mine", "/back"}
    for request in pages:
        ours = request.host == here
        assert ("cookie" in request.headers, "authorization" in request.headers) == (ours, ours), str(request)
    assert all("cookie" not in request.headers for request in done.judge.by_host[there])
    assert all("authorization" not in request.headers for request in done.judge.by_host[there])


def test_another_port_is_another_origin_for_a_password(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_crawls(tmp_path_factory.mktemp("origin"), hosts=1, second_port=True) as two:
        (here,) = two.site.take()
        there = two.site.beside(here)
        two.site.at(here, "/", page(f"http://{there}/"))
        two.site.at(there, "/", page())
        done = two.run(f"http://{here}/", hosts=(here, there), scope="any", auth="user:secret")
        assert {request.host: "authorization" in request.headers for request in done.judge.requests} == {
            here: True,
            there: False,
        }


def test_a_meta_refresh_is_a_hop_of_the_same_chain(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    start = crawls.site.at(host, "/", redirect("/b"))
    second = crawls.site.at(host, "/b", page(head='<meta http-equiv="refresh" content="0; url=/c">'))
    third = crawls.site.at(host, "/c", page())
    done = crawls.run(start)
    assert done.rows[third]["redirects"] == [[start, 302], [second, 0]]


def test_meta_refreshes_that_lead_in_circles_end(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    start = crawls.site.at(host, "/", page(head='<meta http-equiv="refresh" content="0; url=/b">'))
    crawls.site.at(host, "/b", redirect("/"))
    done = crawls.run(start)
    assert done.judge.paths(host) == ["/robots.txt", "/", "/b"]


def test_an_endless_chain_of_meta_refreshes_ends(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    for number in range(30):
        crawls.site.at(host, f"/{number}", page(head=f'<meta http-equiv="refresh" content="0; url=/{number + 1}">'))
    done = crawls.run(f"http://{host}/0", delay_seconds=0.0)
    assert len(done.rows) == 21


def test_a_robots_txt_forbids_the_target_of_a_redirect_on_the_same_host(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    crawls.site.at(host, "/private", page())
    done = crawls.run(crawls.site.at(host, "/", redirect("/private")))
    assert done.judge.paths(host) == ["/robots.txt", "/"]
    assert done.counts.reasons == {"excluded:redirect": 1, "excluded:robots.txt": 1}
