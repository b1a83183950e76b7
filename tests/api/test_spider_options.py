"""Options that a spider of [spiders] sets for its crawls apply to submitted crawls, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.api.auth import create_token
from tests.api.process import ApiProcess, serve_api
from tests.servers import Server, server
from tests.system.shell import Shell

SPIDERS = """
import shoal

class Slow(shoal.Spider):
    name = "slow"
    settings = {"delay_seconds": 2, "max_pages": 7}

class Rude(shoal.Spider):
    name = "rude"
    settings = {"ignore_robots": True}

class Wrong(shoal.Spider):
    name = "wrong"
    settings = {"delay": 1}
"""
TOKENS = {role: create_token(role) for role in ("admin", "submit")}
SEED = "http://example.org/"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("store")) as valkey:
        yield valkey


@pytest.fixture(scope="module")
def api(store: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "spiders.py").write_text(SPIDERS)
    names = {"slow": "spiders.py:Slow", "rude": "spiders.py:Rude", "wrong": "spiders.py:Wrong", "gone": "gone.py:Gone"}
    settings = f'[outputs]\ndefault = "{folder / "pages.db"}"\n[spiders]\n'
    settings += "".join(f'{name} = "{reference}"\n' for name, reference in names.items()) + "[tokens]\n"
    settings += "".join(f'{role} = "{line}"\n' for role, (_, line) in TOKENS.items())
    with serve_api(folder, "--store", store.url, settings=settings, token=TOKENS["admin"][0]) as api:
        yield api


def options(api: ApiProcess, crawl: str) -> dict[str, Any]:
    description = api.client.crawl(crawl)
    return {**description["limits"], **description["policy"]}


def test_options_of_the_request_override_those_of_the_spider(api: ApiProcess) -> None:
    assert api.ask("POST", "/v1/crawls", {"seeds": [SEED], "name": "a", "spider": "slow"}).status == 201
    request = {"seeds": [SEED], "name": "b", "spider": "slow", "max_pages": 3}
    assert api.ask("POST", "/v1/crawls", request).status == 201
    for name, pages in (("a", 7), ("b", 3)):
        settings = options(api, name)
        assert (settings["delay_seconds"], settings["max_pages"]) == (2.0, pages)


def test_a_spider_cannot_set_options_that_its_caller_may_not_set(api: ApiProcess) -> None:
    request = {"seeds": [SEED], "name": "r", "spider": "rude"}
    response = api.ask("POST", "/v1/crawls", request, Authorization=f"Bearer {TOKENS['submit'][0]}")
    assert response.status == 403
    assert "ignore_robots" in response.json["detail"]
    assert api.ask("POST", "/v1/crawls", request).status == 201
    assert options(api, "r")["ignore_robots"] is True


@pytest.mark.parametrize(("name", "reason"), [("gone", "Spider file not found"), ("wrong", "has no argument delay")])
def test_a_spider_that_the_api_cannot_load_is_reported_and_its_crawls_are_accepted(
    api: ApiProcess, name: str, reason: str
) -> None:
    assert f"Crawls of the spider {name} are submitted without its own settings" in api.output()
    assert reason in api.output()
    assert api.ask("POST", "/v1/crawls", {"seeds": [SEED], "name": name, "spider": name}).status == 201


def test_the_command_applies_options_of_the_spider_too(api: ApiProcess, store: Server) -> None:
    shell = Shell(Path(api.errors).parent)
    result = shell.run("submit", SEED, "--spider", "slow", "--name", "c", "--max-pages", 5, "--store", store.url)
    assert result.code == 0, result.err
    settings = options(api, "c")
    assert (settings["delay_seconds"], settings["max_pages"]) == (2.0, 5)
