"""How the tests of robots.txt read it: rules of a text, verdicts on paths, and public files next to the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.politeness.robots_parser import parse
from shoal.politeness.robots_rules import Rules

# Public vectors and files, beside the checkout where they are kept.
DATA = Path(__file__).parents[3] / "shared" / "data"
CRAWLER_COMMONS = "crawler-commons/src/test/resources/robots"
FUZZ_SEEDS = "temoto-robotstxt/_gofuzz/corpus"
RAW_ANSWERS = "reppy/tests/asis"
OURS = "Shoal"


def data(path: str) -> Path:
    file = DATA / path
    if not file.exists():
        pytest.skip(f"{path} is absent: put the public robots.txt data beside the checkout, as shared/data/{path}")
    return file


def rules_of(text: str, token: str = OURS) -> Rules:
    return parse(text.encode(), token)


def verdicts(text: str, *paths: str, token: str = OURS) -> list[bool]:
    rules = rules_of(text, token)
    return [rules.allows(path) for path in paths]


def path_and_query(url: str) -> str:
    after = url.partition("://")[2]
    return after[after.find("/") :] if "/" in after else ""
