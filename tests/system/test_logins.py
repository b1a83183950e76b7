"""Credentials in a start URL: they are sent to its origin, and nothing that a crawl writes or prints has them."""

from __future__ import annotations

import base64
import contextlib
import sqlite3

import pytest

from shoal.errors import InvalidInput, InvalidUrl
from shoal.operations.seeds import seed_url_without_login, without_logins
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import Shell


@pytest.mark.full
def test_credentials_of_a_start_url_are_sent_to_its_origin_and_written_nowhere(site: Site, shell: Shell) -> None:
    own, other = site.take(2)
    site.at(own, "/", page("/a", f"http://{other}/"))
    site.at(own, "/a", page())
    site.at(other, "/", page())
    how = ("--scope", "any", "--delay", "0", "--name", "c", "--out", "pages.db", "--out", "pages.jsonl")
    result = shell.crawl(f"http://ann:s%40cret@{own}/", *how, "--max-depth", "1")
    assert result.code == 0, result.err
    assert len(shell.rows()) == 3
    login = "Basic " + base64.b64encode(b"ann:s@cret").decode()
    assert {request.headers.get("authorization") for request in site.requests(own)} == {login}
    assert {request.headers.get("authorization") for request in site.requests(other)} == {None}
    # Resumed by the same words, revisited, listed, shown, exported.
    texts = [result.err + result.out]
    for args in (
        ("crawl", f"http://ann:s%40cret@{own}/", *how, "--allow-network", "127.0.0.0/8"),
        ("crawl", "--name", "c", "--again", "--allow-network", "127.0.0.0/8", "--log", "json"),
        ("show", "c"), ("show", "c", "--json"), ("crawls",), ("failed", "c"), ("hosts",),
        ("export", "--from", "pages.db", "--to", "copy.jsonl"),
    ):  # fmt: skip
        result = shell.run(*args)
        assert result.code == 0, result.err
        texts.append(result.err + result.out)
    with contextlib.closing(sqlite3.connect(shell.folder / "pages.db")) as connection:
        texts.append("\n".join(connection.iterdump()))
    texts += [(shell.folder / name).read_text() for name in ("pages.jsonl", "copy.jsonl")]
    for text in texts:
        assert "cret" not in text
        assert "ann:" not in text


def test_different_credentials_for_one_origin_are_refused() -> None:
    plain, logins = without_logins(["http://a:b@h.example/x", "http://h.example/y", "ftp://u@f.example/"])
    assert plain == ["http://h.example/x", "http://h.example/y", "ftp://f.example/"]
    assert logins == {"http://h.example": "a:b", "ftp://f.example": "u:"}
    with pytest.raises(InvalidInput, match="different credentials") as error:
        without_logins(["http://a:b@h.example/x", "http://a:secret@h.example/y"])
    assert "secret" not in str(error.value)


def test_urls_that_are_added_later_may_not_have_credentials() -> None:
    assert seed_url_without_login("h.example/x") == "http://h.example/x"
    with pytest.raises(InvalidUrl, match="has credentials") as error:
        seed_url_without_login("http://a:secret@h.example/x")
    assert "secret" not in str(error.value)
