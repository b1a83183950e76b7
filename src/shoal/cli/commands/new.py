"""`shoal new spider`: a spider and its test, from a template, that run as they are."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from shoal.errors import InvalidInput

_LISTING = '''"""A spider that reads lists of entries, the pages that they link to, and the next list."""

import shoal


class {name}(shoal.Spider):
    urls = ("{url}",)

    def parse(self, page):
        """A list: one item for each entry."""
        for link in page.css("a[href]"):
            yield {{"text": link.text(strip=True), "url": page.absolute(link.attributes["href"])}}
        yield from page.follow("a[rel=next]")
'''
_LISTING_TEST = '''"""Run with: python -m pytest {file}"""

from {module} import {name}

from shoal.testing import run_spider

# Save a real page with: shoal fetch {url} --body > page.html
PAGE = b'<ul><li><a href="/one">One</a></ul> <a rel=next href="?page=2">more</a>'


def test_a_list_becomes_items_and_leads_to_the_next_list():
    result = run_spider({name}, PAGE, url="{url}")
    assert result.items[0]["text"] == "One"
    assert [follow.url for follow in result.follows] == ["{url}?page=2"]
'''
_ARTICLE = '''"""A spider that follows the links of a site and takes one item from each page."""

import shoal


class {name}(shoal.Spider):
    urls = ("{url}",)

    def parse(self, page):
        heading = page.css_first("h1")
        yield {{"url": page.url, "title": page.title, "heading": heading.text(strip=True) if heading else ""}}
        # --scope, --max-depth and robots.txt apply to these links.
        yield from page.follow("a[href]")
'''
_ARTICLE_TEST = '''"""Run with: python -m pytest {file}"""

from {module} import {name}

from shoal.testing import run_spider

# Save a real page with: shoal fetch {url} --body > page.html
PAGE = b'<title>One</title><h1>First</h1><a href="/two">two</a>'


def test_a_page_becomes_one_item_and_its_links_are_followed():
    result = run_spider({name}, PAGE, url="{url}")
    assert result.items == ({{"url": "{url}", "title": "One", "heading": "First"}},)
    assert len(result.follows) == 1
'''
_JSON = '''"""A spider that reads a paginated JSON API: a list of results, and the URL of the next page."""

import shoal


class {name}(shoal.Spider):
    urls = ("{url}",)

    def parse(self, page):
        answer = page.json()
        yield from answer["results"]
        if answer.get("next"):
            yield page.visit(answer["next"])
'''
_JSON_TEST = '''"""Run with: python -m pytest {file}"""

from {module} import {name}

from shoal.testing import run_spider

# Save a real page with: shoal fetch {url} --body > page.json
PAGE = b'{{"results": [{{"id": 1}}, {{"id": 2}}], "next": "?page=2"}}'


def test_results_become_items_and_the_next_page_is_visited():
    result = run_spider({name}, PAGE, url="{url}", headers={{"Content-Type": "application/json"}})
    assert [item["id"] for item in result.items] == [1, 2]
    assert [follow.url for follow in result.follows] == ["{url}?page=2"]
'''
TEMPLATES = {"list": (_LISTING, _LISTING_TEST), "article": (_ARTICLE, _ARTICLE_TEST), "json": (_JSON, _JSON_TEST)}


@click.group("new", short_help="Write a spider and its test from a template.")
def command() -> None:
    """Write files from a template."""


@command.command("spider", short_help="Write a spider and its test from a template.")
@click.argument("name")
@click.option(
    "--url", default="https://example.org/", metavar="URL", help="Start URL.  [default: https://example.org/]"
)
@click.option(
    "--template", type=click.Choice(list(TEMPLATES)), default="list",
    help="list: entries and a next page; article: one item for each page; json: a paginated API.  [default: list]",
)  # fmt: skip
def spider(name: str, url: str, template: str) -> None:
    """Write NAME.py and test_NAME.py to the current folder. Both run as they are; then fit them to your site."""
    from shoal.cli.ui.console import report
    from shoal.operations import seed_url

    module = re.sub(r"[-\s]+", "_", name.strip()).lower()
    if not module.isidentifier() or keyword.iskeyword(module):
        raise InvalidInput(f"{name!r} is not a name for a spider: use letters, digits and _, e.g. books.")
    fields = {
        "name": "".join(part.capitalize() for part in module.split("_")), "module": module, "url": seed_url(url),
        "file": f"test_{module}.py",
    }  # fmt: skip
    code, test = TEMPLATES[template]
    files = {Path(f"{module}.py"): code, Path(f"test_{module}.py"): test}
    for path in files:
        if path.exists():
            raise InvalidInput(f"{path} exists; choose another name, or delete it.")
    for path, text in files.items():
        try:
            path.write_text(text.format(**fields))
        except OSError as error:
            raise InvalidInput(f"Cannot write {path}: {error.strerror}.") from None
    reference = f"{module}.py:{fields['name']}"
    report(f"Wrote {module}.py and test_{module}.py. Try it: shoal fetch {fields['url']} --spider {reference}")
    report(f"Crawl with: shoal crawl --spider {reference} --out {module}.jsonl")
