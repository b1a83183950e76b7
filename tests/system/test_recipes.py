"""Each recipe in docs/guides/recipes is at most 15 lines to type, and prints the output that it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.servers import free_port, program
from tests.site.responses import Response, page
from tests.site.site import Site, serving
from tests.system.test_guides import ROOT, Reader, blocks, file_of, reader, steps

__all__ = ["reader"]

RECIPES = sorted(path.stem for path in (ROOT / "docs/guides/recipes").glob("*.md"))
HOSTS = ("manual", "news", "media", "members", "shop", "api", "one", "two", "three", "four", "five")
MOST_LINES = 15


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("example"), hosts=len(HOSTS)) as site:
        yield site


def furnish(site: Site) -> dict[str, str]:
    """The sites that the recipes name. Returns the host of each."""
    hosts = dict(zip(HOSTS, site.hosts, strict=True))
    at = site.at
    manual, news, media, members = (hosts[name] for name in ("manual", "news", "media", "members"))
    at(manual, "/docs/", page("install.html", "use.html", "/blog/", title="Manual"))
    at(manual, "/docs/install.html", page(title="Install"))
    at(manual, "/docs/use.html", page(title="Use"))
    at(news, "/", Response(body=page("/1", "/2", "/3", title="News").body, etag='"0"'))
    for number in (1, 2, 3):
        at(news, f"/{number}", Response(body=page(title=f"Story {number}").body, etag=f'"{number}"'))
    at(media, "/", page("/a.pdf", "/other", body="<img src=/b.png>"))
    at(media, "/a.pdf", Response(body="%PDF-1.4", type="application/pdf"))
    at(media, "/b.png", Response(body="\x89PNG", type="image/png"))
    at(members, "/cookie", page(title="Members"))
    at(members, "/basic", page(title="Members"))
    form = "<form action=/welcome method=post><input name=user><input name=password type=password></form>"
    at(members, "/login", page(body=form))
    at(members, "/welcome", page(title="Welcome"))
    rows = "".join(f"<tr><td>{name}<td>{price}" for name, price in (("Atlas", 7), ("Botany", 9)))
    at(hosts["shop"], "/", page(body=f"<table><tr><th>name<th>price{rows}</table>"))
    for path, following, titles in (
        ("/books?page=1", '"?page=2"', '{"title":"Atlas"},{"title":"Botany"}'),
        ("/books?page=2", "null", '{"title":"Cookery"}'),
    ):
        at(hosts["api"], path, Response(body=f'{{"books":[{titles}],"next":{following}}}', type="application/json"))
    for name in ("one", "two", "three", "four", "five"):
        more = ["/missing"] if name == "five" else []
        at(hosts[name], "/", page(*(f"/{number}" for number in range(5)), *more, title=name))
        for number in range(5):
            at(hosts[name], f"/{number}", page(title=str(number)))
    return hosts


def test_the_guide_has_twelve_recipes() -> None:
    assert len(RECIPES) == 12


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_short_and_run_completely(name: str) -> None:
    path = f"docs/guides/recipes/{name}.md"
    files = [text for _, text in blocks(path) if file_of(text)]
    typed = sum(step.command.count("\n") + 1 for step in steps(path) if step.command != "^C")
    assert typed + sum(len(text.splitlines()) for text in files) <= MOST_LINES
    for language, text in blocks(path):
        assert language == "console" or file_of(text), text


@pytest.mark.full
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_prints_the_output_that_it_shows(name: str, reader: Reader, example: Site) -> None:
    if name == "service":
        program("curl", "apt-get install curl")
    hosts = furnish(example)
    reader.instead[r"\b8080\b"] = str(free_port())
    for site, host in hosts.items():
        reader.instead[rf"https://{site}\.example"] = f"http://{host}"
        reader.instead[rf"(?<![\w.]){site}\.example"] = host
    reader.environ["SHOAL_FETCH_ALLOW_NETWORKS"] = "127.0.0.0/8"
    reader.follow(f"docs/guides/recipes/{name}.md")
    for running in reader.started:
        assert not re.search("Traceback|Internal error", running.output.read_text()), running.command
