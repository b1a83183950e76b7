"""The options of a crawl: declared once, stored as before, and the same for every caller."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from shoal.api.openapi import describe
from shoal.api.routes import ROUTES
from shoal.cli.main import program
from shoal.cli.options import spec_fields
from shoal.errors import InvalidInput, InvalidLimit
from shoal.frontier import Frontier
from shoal.frontier.crawl_codec import crawl_of, packed
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_options import INTERNAL, flag_of, flags, options
from shoal.model.crawl_request import REQUEST_FIELDS, CrawlRequest
from shoal.model.crawl_spec import STORED_SEEDS, CrawlSpec
from shoal.model.limits import Limits
from shoal.model.option import GROUPS, flag_name
from shoal.operations import begin
from shoal.operations.start import RAISABLE
from shoal.operations.submit import parse, submit, to_submission
from shoal.urls import canonical

# Written by the version before CrawlSpec, with another value than the default for each option.
STORED = Path(__file__).with_name("crawl_0_2_0.msgpack")


def stored_crawl(data: bytes) -> Crawl:
    fields = {"id": b"tour", "key": b"k", "st": b"r", "v": b"1", "created": b"1000", "spec": data}
    return crawl_of(fields, 0)


def test_a_spec_stored_by_an_earlier_version_is_read_and_written_unchanged() -> None:
    crawl = stored_crawl(STORED.read_bytes())
    spec = CrawlSpec.of(crawl)
    assert (spec.scope, spec.seeds, spec.places) == ("domain", ("http://a.example/", "ftp://b.example/"), 4)
    assert (spec.spider, spec.order, spec.max_depth, spec.expires_at) == ("Books", "lifo", 7, 2_000_000_000.0)
    assert (spec.follow, spec.attributes, spec.headers) == (False, {"n": [1, None]}, {"X-A": "b"})
    # A range that only requests have does not apply to it.
    assert len(spec.user_agent) > 1000
    before: dict[str, Any] = msgspec.msgpack.decode(STORED.read_bytes())
    after: dict[str, Any] = msgspec.msgpack.decode(packed(spec.limits(), spec.stored()))
    assert {part: {name: after[part][name] for name in before[part]} for part in before} == before
    defaults = msgspec.msgpack.decode(packed(Limits(), CrawlSpec().stored()))
    for part in ("limits", "spec"):
        assert [name for name in before[part] if before[part][name] == defaults[part][name]] in ([], ["parent"])


def test_a_crawl_without_a_spec_has_the_defaults() -> None:
    assert CrawlSpec.of(Crawl("a", "a", State.RUNNING, 1, Limits(places=2), 0.0)) == CrawlSpec(places=2)


@pytest.mark.parametrize("spec", [{"unknown": 1}, {"retries": "3"}, {"retries": 101}, {"places": 2}])
def test_a_spec_of_another_version_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidLimit):
        CrawlSpec.of(Crawl("a", "a", State.RUNNING, 1, Limits(), 0.0, spec=spec))


def test_every_option_has_a_description_and_one_enforcer() -> None:
    for option in options():
        assert option.description.endswith("."), option.name
        assert option.enforced_by in ("frontier", "worker")
        assert not (option.internal and option.flag)
        assert option.flag is None or option.flag.group in GROUPS
    assert {option.attribute for option in options() if option.enforced_by == "frontier"} == {*Limits.__struct_fields__}


def test_every_limit_is_off_by_default_and_can_be_raised() -> None:
    limits = [option for option in options() if option.attribute.startswith("max_")]
    assert {option.attribute for option in limits} == RAISABLE
    assert all(option.default in (0, None) for option in limits)


@pytest.mark.parametrize("command_name", ["crawl", "submit"])
def test_every_flag_sets_its_option(command_name: str) -> None:
    command = program.get_command(click.Context(program), command_name)
    assert command is not None
    typed = {
        "scope": "any",
        "header": ("A: b",),
        "attribute": ("A=b",),
        "argument": ("A=b",),
        "file_types": ("image/, text/",),
    }
    for option, _ in flags(command_name):
        param = next(param for param in command.params if f"--{flag_name(option)}" in param.opts)
        name = str(param.name)
        value: Any = typed.get(name, ("x",) if param.multiple else True if option.kind is bool else 7)
        expected = {
            "scope": "any", "headers": {"A": "b"}, "attributes": {"A": "b"}, "arguments": {"A": "b"},
            "file_types": ("image/", "text/"),
        }.get(option.attribute, value if option.default is not True else False)  # fmt: skip
        assert spec_fields(command_name, {name: value}) == {option.attribute: expected}
    assert spec_fields(command_name, {str(param.name): None for param in command.params}) == {}


def test_every_flag_is_named_after_its_option() -> None:
    assert flag_of("delay_seconds") == "--delay"
    assert flag_of("follow") == "--no-follow"
    assert flag_of("max_pages") == "--max-pages"
    assert flag_of("outputs") == "--out"


def test_the_documented_request_has_every_public_option_and_no_internal_one() -> None:
    schema = describe(ROUTES)["components"]["schemas"]["CrawlRequest"]
    assert sorted(schema["properties"]) == sorted(REQUEST_FIELDS)
    assert schema["required"] == ["seeds"]
    assert all(field.get("description") for field in schema["properties"].values())


@pytest.mark.parametrize("name", sorted(INTERNAL))
def test_a_request_cannot_set_an_internal_option(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"Object contains unknown field `{name}`"):
        parse({"seeds": ["http://a.example/"], name: ""})


@pytest.mark.parametrize("option", [each for each in options() if each.least is not None], ids=lambda each: each.name)
def test_a_number_out_of_range_is_refused_by_requests_and_by_checks(option: Any) -> None:
    for value in (option.least - 1, option.most * 2):
        with pytest.raises(InvalidLimit, match=f"^{option.name} is "):
            CrawlSpec(**{option.attribute: value}).check()
        if not option.internal:
            with pytest.raises(InvalidInput, match=rf"Expected .* at `\$\.{option.name}`"):
                parse({"seeds": ["http://a.example/"], option.name: value})


class Count:
    """Counts the calls of `canonical` by URL, whichever module makes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: dict[str, int] = {}
        import sys

        real = canonical.canonical

        def counting(url: str, *arguments: Any, **keywords: Any) -> Any:
            self.calls[url] = self.calls.get(url, 0) + 1
            return real(url, *arguments, **keywords)

        for module in list(sys.modules.values()):
            if getattr(module, "canonical", None) is real:
                monkeypatch.setattr(module, "canonical", counting)


async def test_a_seed_is_canonicalized_at_most_twice_on_its_way_to_the_frontier(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    urls = [f"http://{host}.example/" for host in ("a", "b", "c")]
    async with await Frontier.open(folder=str(tmp_path / "store")) as frontier:
        count = Count(monkeypatch)
        await submit(frontier, to_submission(CrawlRequest(seeds=tuple(urls), name="submitted")))
        assert [count.calls[url] for url in urls] == [2, 2, 2]
        count.calls.clear()
        submission = to_submission(CrawlRequest(seeds=tuple(urls), name="begun"))
        await begin(frontier, name="begun", seeds=submission.urls, spec=submission.spec)
        assert [count.calls[url] for url in urls] == [2, 2, 2]
        assert (await frontier.crawls.count("begun")).waiting == 3


def test_a_spec_stores_the_first_seeds_and_the_crawl_adds_all() -> None:
    seeds = tuple(f"http://a.example/{number}" for number in range(STORED_SEEDS + 5))
    submission = to_submission(CrawlRequest(seeds=seeds))
    assert (len(submission.spec.seeds), len(submission.urls)) == (STORED_SEEDS, STORED_SEEDS + 5)


def test_options_have_precise_types() -> None:
    assert typing.get_type_hints(CrawlSpec)["max_depth"] == int | None
