"""`shoal fetch` and `shoal shell`: one page, without a crawl."""

from __future__ import annotations

import json
import signal

from tests.servers import wait_until
from tests.site.responses import Response, page, redirect, robots
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

SPIDER = """
import shoal
class Titles(shoal.Spider):
    sign = ""
    def parse(self, page):
        yield {"title": page.title + self.sign, "n": len(page.links)}
        yield from page.follow("a", callback="other")
    def other(self, page):
        raise ValueError("no such thing")
"""


def test_a_page_is_shown_as_a_crawl_would_see_it(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\nCrawl-delay: 0.2\n"))
    site.at(host, "/old", redirect("/new", 301))
    site.at(host, "/new", page("/a", "http://elsewhere.example/", title="Hello"))
    result = shell.run("fetch", f"http://{host}/old", "--delay", "0.1", *LOCAL)
    assert result.code == 0, result.err
    lines = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in result.out.splitlines() if line[0] != " "}
    assert lines["url"] == f"http://{host}/new"
    assert lines["redirect"] == f"301 from http://{host}/old"
    assert lines["status"].startswith("200, ")
    assert "first byte" in lines["time"]
    assert lines["robots.txt"] == f"No rule for shoal in http://{host}/robots.txt matches."
    assert lines["title"] == "Hello"
    assert lines["links"] == "1 link to follow, of 2 on the page"
    assert "a link" in result.out
    assert not list(shell.folder.iterdir()), "nothing is stored"
    judge = site.judge(host)
    assert [request.path for request in judge.requests] == ["/robots.txt", "/old", "/new"]
    assert not judge.impolite(0.1)


def test_the_whole_result_can_be_json_and_the_body_can_be_raw(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", title="Hello"))
    result = shell.run("fetch", f"http://me:secret@{host}/", "--delay", "0", "--json", *LOCAL)
    fetched = json.loads(result.out)
    assert (fetched["status"], fetched["record"]["title"], fetched["links"]) == (200, "Hello", [f"http://{host}/a"])
    assert fetched["timings"]["total"] > 0
    assert "secret" not in result.out
    assert site.requests(host)[-1].headers["authorization"].startswith("Basic ")
    result = shell.run("fetch", f"http://{host}/", "--delay", "0", "--body", *LOCAL)
    assert result.out.startswith("<!doctype html>")


def test_robots_txt_is_obeyed_with_its_line(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    site.at(host, "/private", page())
    result = shell.run("fetch", f"http://{host}/private", "--delay", "0", *LOCAL)
    assert result.code == 2
    assert "Rule `Disallow: /private` of group `User-agent: *` in line 2" in result.err
    assert "--ignore-robots" in result.err
    assert [request.path for request in site.requests(host)] == ["/robots.txt"]
    assert shell.run("fetch", f"http://{host}/private", "--ignore-robots", *LOCAL).code == 0


def test_a_failing_robots_txt_and_a_missing_page_are_reported(shell: Shell, site: Site) -> None:
    host, other = site.take(2)
    site.at(host, "/robots.txt", Response(status=503))
    result = shell.run("fetch", f"http://{host}/", "--delay", "0", *LOCAL)
    assert (result.code, "responds with status 503" in result.err) == (2, True)
    assert shell.run("fetch", f"http://{other}/missing", "--delay", "0", *LOCAL).code == 1


def test_the_items_of_a_spider_are_shown(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b", title="Hello"))
    (shell.folder / "titles.py").write_text(SPIDER)
    result = shell.run("fetch", f"http://{host}/", "--spider", "titles.py:Titles", "--delay", "0", *LOCAL)
    assert result.code == 0, result.err
    assert '{"title":"Hello","n":2}' in result.out
    assert f"http://{host}/b -> other" in result.out
    result = shell.run(
        "fetch", f"http://{host}/", "--spider", "titles.py:Titles", "-a", "sign=!", "--delay", "0", *LOCAL
    )
    assert '{"title":"Hello!","n":2}' in result.out
    args = ("--spider", "titles.py:Titles", "--callback", "other", "--delay", "0", *LOCAL)
    result = shell.run("fetch", f"http://{host}/", *args)
    assert result.code == 2
    assert 'raise ValueError("no such thing")' in result.err
    assert "The spider failed" in result.err


def test_a_prompt_has_the_page_and_can_fetch_another(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", title="Hello"))
    site.at(host, "/a", page(title="Other"))
    typed = f"print(page.title, response.status, links)\nfetch('http://{host}/a')\nprint(page.title, record.url)\n"
    result = shell.run("shell", f"http://{host}/", "--delay", "0", *LOCAL, stdin=typed)
    assert result.code == 0, result.err
    assert f"Hello 200 ['http://{host}/a']" in result.out
    assert f"Other http://{host}/a" in result.out


def test_a_changed_spider_is_run_again_on_the_same_page(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page(title="Hello"))
    spider = shell.folder / "titles.py"
    (shell.folder / "words.py").write_text("WORD = 'first'\n")
    spider.write_text(
        "import shoal\nfrom words import WORD\nclass Titles(shoal.Spider):\n"
        "    def parse(self, page):\n        print('ran', WORD)\n        yield {'word': WORD}\n"
    )
    watching = shell.start(
        "fetch", f"http://{host}/", "--spider", "titles.py:Titles", "--watch", "--delay", "0", *LOCAL
    )
    watching.wait_for_output("Watching")
    (shell.folder / "words.py").write_text("WORD = 'the second'\n")
    wait_until(lambda: sum("Watching" in line for line in watching.stderr_lines) == 2, "it runs again")
    spider.write_text("import shoal\nclass Titles(shoal.Spider\n")
    watching.wait_for_output("cannot be loaded")
    result = watching.end(signal.SIGINT)
    assert result.code == 130
    assert '{"word":"first"}' in result.out
    assert '{"word":"the second"}' in result.out
    assert [request.path for request in site.requests(host)] == ["/robots.txt", "/"]


def test_an_unreachable_host_is_named_and_not_its_robots_txt(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    result = shell.run("fetch", f"http://{host}/")
    assert result.code != 0
    assert "is loopback; --allow-network or fetch.allow_networks allows a private network" in result.err
    assert "robots" not in result.err
    result = shell.run("fetch", "http://nobody.invalid/")
    assert "robots" not in result.err
    assert "its name" in result.err
    assert site.requests(host) == []
