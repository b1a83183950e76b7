"""The site gives its configured responses, and its log is exact: tested by raw sockets, not by Shoal."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.servers import wait_until
from tests.site.responses import Response, redirect, robots
from tests.site.site import Site, serving


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("site"), hosts=30, second_port=True) as served:
        yield served


def connect(host: str) -> socket.socket:
    address, _, port = host.rpartition(":")
    return socket.create_connection((address, int(port)), timeout=5)


def ask(link: socket.socket, host: str, path: str, *headers: str) -> tuple[int, str, bytes]:
    """One request on an open connection: status, head, body."""
    link.sendall("\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += link.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: ")]
    length = int(lengths[0].split()[1]) if lengths else 0
    while len(body) < length and (more := link.recv(65536)):
        body += more
    return int(head.split()[1]) if head else 0, head.decode("latin-1"), body


def test_responses_are_served_in_order_and_the_last_one_is_repeated(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(status=503, headers=(("Retry-After", "1"),)), Response(body="fine"))
    with connect(host) as link:
        assert "Retry-After: 1" in ask(link, host, "/")[1]
        assert [ask(link, host, "/")[2] for _ in range(2)] == [b"fine", b"fine"]
        assert ask(link, host, "/elsewhere")[0] == 404
    assert [request.status for request in site.requests(host)] == [503, 200, 200, 404]


def test_a_change_of_the_site_applies_from_the_next_request(site: Site) -> None:
    (host,) = site.take()
    with connect(host) as link:
        assert ask(link, host, "/robots.txt")[0] == 404
        site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /"))
        assert ask(link, host, "/robots.txt")[2] == b"User-agent: *\nDisallow: /"


def test_ports_and_names_are_separate_hosts(site: Site) -> None:
    (host,) = site.take()
    for served_host in (host, site.beside(host), site.name("a"), site.name("b")):
        site.at(served_host, "/", Response(body=served_host))
    for served_host, where in ((host, host), (site.beside(host), site.beside(host))):
        with connect(where) as link:
            assert ask(link, served_host, "/")[2] == served_host.encode()
    with connect(f"127.0.0.1:{site.port}") as link:
        for name in (site.name("a"), site.name("b")):
            assert ask(link, name, "/")[2] == name.encode()


def test_a_matching_validator_gets_a_304(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(body="text", etag='"1"', modified="Sun, 06 Nov 1994 08:49:37 GMT"))
    with connect(host) as link:
        assert ask(link, host, "/", 'If-None-Match: "1"')[::2] == (304, b"")
        assert ask(link, host, "/", 'If-None-Match: "0"')[::2] == (200, b"text")
        assert ask(link, host, "/", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT")[::2] == (304, b"")
    assert site.requests(host)[0].headers == {"if-none-match": '"1"'}


def test_a_slow_response_ends_in_the_log_when_its_last_byte_is_sent(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/late", Response(body="late", after=0.2))
    site.at(host, "/long", Response(body="a long text of many words", lasting=0.2))
    with connect(host) as link:
        for path in ("/late", "/long"):
            assert len(ask(link, host, path)[2]) == (4 if path == "/late" else 25)
    for request in site.requests(host):
        assert request.ended - request.began >= 0.2


def test_a_large_response_does_not_end_until_the_client_has_read_it(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(size=30_000_000))
    with connect(host) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        wait_until(lambda: site.requests(host), "the request is in the log")
        time.sleep(0.2)
        assert site.requests(host)[0].how == "open"
        taken = 0
        while taken < 30_000_000:
            taken += len(link.recv(1 << 20))
        wait_until(lambda: site.requests(host)[0].how == "done", "the response has ended")
    assert site.requests(host)[0].bytes == 30_000_000


def test_a_client_that_disconnects_is_logged(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(fault="silent"))
    with connect(host) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        wait_until(lambda: site.requests(host), "the request is in the log")
    wait_until(lambda: site.requests(host)[0].how == "gone", "its end is, too")


@pytest.mark.parametrize(("fault", "sees"), [("close", b""), ("reset", None)])
def test_faults_reach_the_client(site: Site, fault: str, sees: bytes | None) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(fault=fault))
    with connect(host) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        if sees is None:
            with pytest.raises(ConnectionResetError):
                link.recv(100)
        else:
            assert link.recv(100) == sees
    assert site.requests(host)[0].how == fault


def test_a_truncated_response_announces_more_than_it_sends(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(body="0123456789", cut=4))
    with connect(host) as link:
        _, head, body = ask(link, host, "/")
        assert "Content-Length: 10" in head
        assert body == b"0123"
        assert link.recv(10) == b""


def test_an_endless_response_continues_until_the_client_disconnects(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(fault="endless"))
    with connect(host) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        taken = 0
        while taken < 5_000_000:
            taken += len(link.recv(1 << 20))
    wait_until(lambda: site.requests(host)[0].how == "gone", "it has seen the client leave")


def test_a_closed_host_refuses_connections_until_it_is_opened(site: Site) -> None:
    (host,) = site.take()
    with connect(host) as link:
        assert ask(link, host, "/")[0] == 404
        site.shut(host)
        assert link.recv(10) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(host)
    site.open(host)
    with connect(host) as link:
        assert ask(link, host, "/")[0] == 404


def test_headers_are_sent_unchanged(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", redirect("/a\rb\xe9"))
    with connect(host) as link:
        assert "Location: /a\rb\xe9\r\n" in ask(link, host, "/")[1]


def test_a_tls_handshake_is_not_a_request_and_does_no_harm(site: Site) -> None:
    (host,) = site.take()
    with connect(host) as link:
        link.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        assert link.recv(10) == b""
    assert not site.requests(host)


def test_every_page_of_a_tree_is_served_only_by_its_host(site: Site) -> None:
    hosts = site.take(3)
    tree = site.plant(40, hosts, size=5000)
    assert len(tree.walk()) == 40
    for url in tree.walk():
        host, _, path = url.removeprefix("http://").partition("/")
        with connect(host) as link:
            status, _, body = ask(link, host, f"/{path}")
            assert status == 200
            assert all(f'href="{tree.url(n)}"'.encode() in body for n in tree.links(int(path.rpartition("/")[2])))
            assert 4900 < len(body) <= 5000
    with connect(hosts[0]) as link:
        assert [ask(link, hosts[0], path)[0] for path in ("/p/1", "/p/00", "/p/40", "/p/x")] == [404] * 4
