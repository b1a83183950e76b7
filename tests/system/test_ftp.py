"""Crawls of FTP servers: whole trees of files and directories, politely, and only if a seed is an FTP URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.ftp import serving_ftp
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("ftp"), hosts=5, workers=2) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    for number in range(3):
        inner = folder / f"dir {number}" / "deeper"
        inner.mkdir(parents=True)
        (inner / f"é{number}.txt").write_text("text")
        (folder / f"file{number}.txt").write_text("text")
    (folder / "page.html").write_text("<title>A page</title><a href='file0.txt'>a</a><a href='unlisted/x.txt'>b</a>")
    (folder / "private").mkdir()
    (folder / "private" / "secret.txt").write_text("secret")
    return folder


def tree(folder: Path, start: str) -> set[str]:
    """The URLs of everything below a folder, its own too."""
    names = [str(path.relative_to(folder)) + ("/" if path.is_dir() else "") for path in folder.rglob("*")]
    return {start, *(start + name.replace(" ", "%20").replace("é", "%C3%A9") for name in names)}


@pytest.mark.parametrize("without", [(), ("MLSD",)])
def test_a_whole_tree_is_crawled(crawls: Crawls, folder: Path, without: tuple[str, ...]) -> None:
    address = "127.0.2.1" if without else "127.0.2.2"
    with serving_ftp(folder, address=address, without=without) as server:
        done = crawls.run(server.url("/"))
        unlisted = server.url("/unlisted/x.txt")
        assert set(done.rows) == tree(folder, server.url("/")) | {unlisted}
        # There is no robots.txt, and what a page links to is a visit like any other.
        assert done.counts.reasons == {"failed:status 404": 1}
        assert done.rows[server.url("/file0.txt")]["content_type"] == "text/plain"
        assert done.rows[server.url("/page.html")]["title"] == "A page"
        assert done.rows[server.url("/dir%200/deeper/")]["links"] == 1
        assert {row["status"] for url, row in done.rows.items() if url != unlisted} == {200}
        # Nothing is fetched twice.
        fetched = [command for command in server.commands if command.startswith("RETR") and "robots.txt" not in command]
        assert len(fetched) == len(set(fetched))


def test_robots_txt_and_a_login_apply_to_ftp_too(crawls: Crawls, folder: Path) -> None:
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private/\nDisallow: /*.html")
    with serving_ftp(folder, address="127.0.2.3", users={"ann": "s3cret"}) as server:
        done = crawls.run(server.url("/", user="ann:s3cret"))
        assert done.counts.reasons == {"excluded:robots.txt": 2}
        assert set(server.logins) == {"ann"}
        assert not any("private" in command or "html" in command for command in server.commands)
        start = server.url("/", user="ann:s3cret")
        assert set(done.rows) == {
            url for url in tree(folder, start) if "private" not in url and not url.endswith(".html")
        }
    assert "s3cret" not in "".join(crawls.errors(name) for name in crawls.workers)


def test_a_web_page_cannot_send_a_crawl_to_ftp(crawls: Crawls, folder: Path) -> None:
    with serving_ftp(folder, address="127.0.2.4") as server:
        (host,) = crawls.site.take()
        start = crawls.site.at(host, "/", page(server.url("/file0.txt"), "/more"))
        crawls.site.at(host, "/more", page())
        done = crawls.run(start, scope="any")
        assert (set(done.rows), done.counts.reasons) == ({start, f"http://{host}/more"}, {})
        assert server.commands == []
        # Unless it was started for both.
        done = crawls.run(start, server.url("/dir%200/"), scope="any", limits={"max_depth": 1})
        assert server.url("/file0.txt") in done.rows
