"""The reference names everything that is public, and its quotations match the code.

docs/reference/scripts.md is the headers of the Lua scripts; `python -m tests.unit.test_reference` writes it.
"""

from __future__ import annotations

import enum
import inspect
import re
from pathlib import Path

import msgspec
import pytest

import shoal
import shoal.frontier
from shoal.brokers.address import OPTIONS
from shoal.frontier import scripts
from shoal.frontier.crawls import Crawls
from shoal.frontier.hosts import Hosts
from shoal.frontier.robots_cache import RobotsCache
from shoal.frontier.validators import Validators
from shoal.frontier.workers import WorkerInfo, Workers
from shoal.model.crawl_request import REQUEST_FIELDS
from shoal.model.crawl_spec import DROPPED_PARAMETERS
from shoal.sinks.contract import Location
from shoal.sinks.registry import technologies
from shoal.urls import traps

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LUA = ROOT / "src/shoal/frontier/lua"
SERVICES = {
    "Frontier": shoal.Frontier, "Crawls": Crawls, "Hosts": Hosts, "Robots": RobotsCache, "Validators": Validators,
    "Workers": Workers, "Store": shoal.Store,
}  # fmt: skip
VALUES = {name: getattr(shoal, name) for name in shoal.__all__ if name not in SERVICES} | {"Worker": WorkerInfo}
FUNCTIONS = [name for name in shoal.frontier.__all__ if not inspect.isclass(getattr(shoal.frontier, name))]
TESTS = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
}
# Those that a table of the guide for Scrapy names.
SCRAPY_REDIS_TESTS = {"test_picklecompat", "test_consume_urls_from_redis"}
SCRIPTS_HEAD = """\
# Scripts

Each operation of the frontier is one Lua script on the store; this page lists their headers.

Every script gets the shard's `meta` key as KEYS[1] and builds the names of other keys from its prefix
([the keys](store-keys.md)). In all scripts except `found`, ARGV[1] has the time that the caller expects; only tests
set the time itself. A script validates all of its arguments before it writes. `--include` lists the shared
parts that it starts with. A reply starts with a status:
"""


def section(name: str) -> str:
    """What the reference of the Python API says under a heading."""
    text = "".join((DOCS / f"reference/{page}.md").read_text() for page in ("frontier", "python"))
    match = re.search(rf"^(##+) {name}$(.*?)(?=^##+ |\Z)", text, re.M | re.S)
    assert match, f"docs/reference/frontier.md and python.md have no heading {name}"
    return match[2]


def members(service: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(service) if not name.startswith("_")}


@pytest.mark.parametrize("name", SERVICES)
def test_every_public_method_is_in_the_reference_with_its_parameters(name: str) -> None:
    text = section(name)
    rows = {row[1]: row[0] for row in re.findall(r"(^\| `(?:await )?(\w+)[(`].*$)", text, re.M)}
    public = members(SERVICES[name])
    assert set(rows) == set(public), "a method without a row, or a row without a method"
    for method, member in public.items():
        if callable(member):
            called = rows[method].split("|")[1]
            for parameter in list(inspect.signature(member).parameters.values()):
                if parameter.name != "self":
                    assert re.search(rf"\b{parameter.name}\b", called), f"{name}.{method}: {parameter.name} is missing"


@pytest.mark.parametrize("name", VALUES)
def test_every_field_of_a_value_is_in_the_reference(name: str) -> None:
    value = VALUES[name]
    if inspect.isfunction(value):
        for parameter in inspect.signature(value).parameters:
            assert re.search(rf"`{parameter}`", section(name)), parameter
        return
    fields: set[str] = set(value.__struct_fields__) if issubclass(value, msgspec.Struct) else set()
    if issubclass(value, enum.Enum):
        fields |= {member.value for member in value}
    for member, thing in vars(value).items():
        if not member.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, property)):
            fields.add(member)
    text = section(name)
    missing = {field for field in fields if not re.search(rf"`{field}[`(]", text)}
    assert not missing


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^\| `(?:await )?{name}\(", section("Functions"), re.M)


def test_every_key_of_a_shard_is_in_the_reference_and_no_other() -> None:
    text = (DOCS / "reference/store-keys.md").read_text()
    named = re.findall(r"^\| `([a-z]+:?)[^`]*` \|", text, re.M)
    # Scripts write every key but `meta`, which they are given. Heartbeats, audit trail and sessions are of no shard.
    written = {name for path in LUA.rglob("*.lua") for name in re.findall(r"P \.\. '([a-z]+:?)'", path.read_text())}
    assert sorted(named) == sorted({"meta", *written} - {"audit", "beats", "infos", "nonowners", "owners", "sessions"})


def scripts_page() -> str:
    statuses = ", ".join(f"`{status.name}` {status.value}" for status in scripts.Status)
    parts = [f"{SCRIPTS_HEAD}{statuses}."]
    for name in scripts.names():
        parts.append(f"## {name}\n\n```lua\n{header(LUA / f'{name}.lua')}\n```")
    parts.append("## Shared parts\n\nShared code, inserted at the start of each script that includes it.")
    for path in sorted((LUA / "include").glob("*.lua")):
        parts.append(f"### include/{path.stem}\n\n```lua\n{header(path)}\n```")
    return "\n\n".join(parts) + "\n"


def header(path: Path) -> str:
    """The comment a script begins with."""
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    assert lines, f"{path.name} does not begin with a header"
    return "\n".join(lines)


def test_the_page_of_scripts_matches_their_headers() -> None:
    page = DOCS / "reference/scripts.md"
    assert page.read_text() == scripts_page(), "run: python -m tests.unit.test_reference"


def test_the_guide_has_the_whole_example() -> None:
    example = (ROOT / "examples/crawler.py").read_text()
    code = example[example.index("import asyncio") :]
    assert f"```python\n{code}```" in (DOCS / "guides/first-crawler.md").read_text()


def test_every_kind_of_output_is_in_the_reference() -> None:
    text = (DOCS / "reference/results.md").read_text()
    for technology in technologies():
        if technology.location is not Location.CALLER:
            for scheme in technology.schemes:
                assert re.search(rf"`{scheme}:", text), scheme
            assert not technology.extra or f"[{technology.extra}]" in text
            for ending in technology.endings:
                assert re.search(rf"`(?:pages)?{re.sub(r'[.](?:gz|zst)$', '', ending)}`", text), ending
    for scheme, options in OPTIONS.items():
        for option in options:
            assert re.search(rf"`\??{re.escape(option)}[`=]", text), (scheme, option)


def test_every_trap_and_every_dropped_parameter_is_in_the_concepts() -> None:
    text = (DOCS / "concepts/discovery.md").read_text()
    kinds = [value for value in vars(traps).values() if isinstance(value, str) and value.startswith("trap: ")]
    assert [row.strip("`") for row in table(text)][1:] == kinds
    assert all(f"`{name}`" in text for name in DROPPED_PARAMETERS)
    assert f"{traps.MAX_LENGTH:,} characters" in text
    assert f"more than {traps.MAX_SEGMENTS} segments" in text
    assert f"already has {traps.MAX_HOSTS:,} hosts" in text


def test_every_option_of_a_crawl_is_in_the_reference_and_no_other() -> None:
    terms = section("crawl").partition("| term |")[2].partition("\n\n")[0]
    named = [name for row in table(terms) for name in re.findall(r"`(\w+)", row)]
    assert sorted(named) == sorted({*REQUEST_FIELDS} - {"seeds", "name", "spider"})


def test_every_field_of_an_event_is_explained_and_no_other() -> None:
    events, _, fields = (DOCS / "reference/logs.md").read_text().partition("## Fields")
    listed = {name for row in table(events).values() for name in re.findall(r"`(\w+)`", row[0])}
    explained = [name for row in table(fields) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(explained) == sorted(listed)


def test_metrics_that_a_page_names_exist() -> None:
    listed, _, advice = (DOCS / "reference/metrics.md").read_text().partition("## What to look at")
    known = {name.strip("`") for name in table(listed)}
    assert len(known) > 10
    assert set(re.findall(r"\bshoal_\w+", advice)) <= known


def test_every_test_that_a_page_names_exists() -> None:
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        named -= SCRAPY_REDIS_TESTS
        assert named <= TESTS, f"{page.name} names tests that do not exist: {sorted(named - TESTS)}"


def test_figures_in_the_readme_are_those_of_the_benchmarks() -> None:
    measured = table((DOCS / "reference/benchmarks.md").read_text())
    quoted = {name: row for name, row in table((ROOT / "README.md").read_text()).items() if name in measured}
    assert len(quoted) >= 5
    for name, (figure, peer, *_) in quoted.items():
        unit, scrapy_redis = measured[name][1], measured[name][5]
        assert (figure, peer) == (f"{measured[name][0]} {unit}", f"{scrapy_redis} {unit}" if scrapy_redis else ""), name


def table(text: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows if row[0].strip("-")}


if __name__ == "__main__":
    (DOCS / "reference/scripts.md").write_text(scripts_page())
