"""Scope: how far from the seeds, patterns in linear time, extensions; and the public suffix list's own vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidLimit, InvalidUrl
from shoal.urls.canonical import Target, canonical
from shoal.urls.scope import NOT_ALLOWED, OUTSIDE, Scope, domain_of, registrable_domain

# Public vectors, beside the checkout where they are kept.
VECTORS = Path(__file__).parents[3] / "shared" / "data" / "publicsuffix" / "tests" / "tests.txt"


def _seeds(*urls: str) -> list[Target]:
    return [canonical(url) for url in urls]


def _in(scope: Scope, url: str) -> bool:
    return scope.verdict(canonical(url)) == ""


def test_registrable_domains_are_those_of_the_public_suffix_list() -> None:
    if not VECTORS.exists():
        pytest.skip("the vectors are absent: put tests/tests.txt of publicsuffix/list beside the checkout")
    lines = [line.split() for line in VECTORS.read_text().splitlines() if line and not line.startswith("//")]
    assert len(lines) > 70
    wrong = []
    for name, expected in lines:
        domain = registrable_domain("" if name == "null" else name)
        if domain != ("" if expected == "null" else expected):
            wrong.append((name, expected, domain))
    assert not wrong


def test_host_scope_is_the_same_host_and_port_with_http_or_https() -> None:
    scope = Scope("host", _seeds("http://a.example/x", "http://b.example:8080/"))
    assert _in(scope, "https://a.example/other")
    assert _in(scope, "http://user@a.example/")
    assert _in(scope, "http://b.example:8080/y")
    assert not _in(scope, "http://b.example/")
    assert not _in(scope, "http://www.a.example/")
    assert scope.verdict(canonical("http://c.example/")) == OUTSIDE["host"]


def test_domain_scope_is_the_registrable_domain_with_all_hosts_and_ports() -> None:
    scope = Scope("domain", _seeds("http://www.shop.co.uk/"))
    assert _in(scope, "https://shop.co.uk/")
    assert _in(scope, "http://a.b.shop.co.uk:8080/")
    assert not _in(scope, "http://other.co.uk/")
    assert not _in(scope, "http://shop.co.uk.example/")
    assert not _in(scope, "http://notshop.co.uk/")


def test_sites_under_a_shared_public_suffix_are_different_domains() -> None:
    scope = Scope("domain", _seeds("https://alice.github.io/"))
    assert not _in(scope, "https://mallory.github.io/")
    assert not _in(scope, "https://github.io/")


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::1]:8080", "[::1]"),
        ("localhost:8000", "localhost"),
        ("co.uk", "co.uk"),
        ("www.xn--85x722f.com.cn", "xn--85x722f.com.cn"),
    ],
)
def test_ip_addresses_and_names_without_a_domain_are_their_own_domain(host: str, domain: str) -> None:
    assert domain_of(host) == domain


def test_an_ip_address_is_not_a_domain_of_other_addresses() -> None:
    scope = Scope("domain", _seeds("http://10.0.0.1/"))
    assert _in(scope, "http://10.0.0.1:8080/")
    assert not _in(scope, "http://11.0.0.1/")


@pytest.mark.parametrize(
    ("seed", "url", "inside"),
    [
        ("http://a.example/docs/", "https://a.example/docs/x/y?q", True),
        ("http://a.example/docs/", "http://a.example/docs", False),
        ("http://a.example/docs/", "http://a.example/docs2/", False),
        ("http://a.example/docs", "http://a.example/docs", True),
        ("http://a.example/docs", "http://a.example/docs?page=2", True),
        ("http://a.example/docs", "http://a.example/docs/x", True),
        ("http://a.example/docs", "http://a.example/docs2", False),
        ("http://a.example/docs/index.html?x=/y", "http://a.example/docs/z", True),
        ("http://a.example/docs/index.html", "http://a.example/", False),
        ("http://a.example/docs/", "http://a.example/docs/../secret", False),
        ("http://a.example/docs/", "http://a.example/x?/docs/", False),
        ("http://a.example/docs/", "http://b.example/docs/", False),
        ("http://a.example/docs/", "http://user:x@a.example/docs/y", True),
        ("http://a.example", "http://a.example/all", True),
    ],
)
def test_prefix_scope_contains_the_urls_below_the_seed(seed: str, url: str, inside: bool) -> None:
    assert _in(Scope("prefix", _seeds(seed)), url) is inside


def test_the_cost_of_a_prefix_verdict_does_not_grow_with_the_seeds() -> None:
    scope = Scope("prefix", [canonical(f"http://a.example/d/{n}/") for n in range(1000, 9000)])
    assert _in(scope, "http://a.example/d/1234/x")
    assert not _in(scope, "http://a.example/d/12345/x")
    # One look-up for each length of a prefix, however many prefixes have it.
    assert scope._prefixes["a.example"][1] == (len("/d/1234/"),)


def test_any_scope_accepts_every_url() -> None:
    assert _in(Scope("any"), "ftp://elsewhere.example/file")


def test_deny_overrides_allow_and_allow_excludes_everything_else() -> None:
    scope = Scope("any", allow=[r"/product/", r"\.example/about$"], deny=[r"[?&]print=1", "product/old"])
    assert _in(scope, "http://a.example/product/7")
    assert _in(scope, "http://a.example/about")
    assert scope.verdict(canonical("http://a.example/blog")) == NOT_ALLOWED
    assert scope.verdict(canonical("http://a.example/product/7?print=1")) == "scope: deny pattern [?&]print=1"
    assert scope.verdict(canonical("http://a.example/product/old")) == "scope: deny pattern product/old"


def test_seeds_ignore_allow_patterns_but_obey_deny_patterns() -> None:
    scope = Scope("any", allow=["/product/"], deny=["private"])
    assert scope.verdict(canonical("http://a.example/"), seed=True) == ""
    assert scope.verdict(canonical("http://a.example/private"), seed=True).startswith("scope: deny")


def test_skipped_extensions_are_matched_against_the_path_only() -> None:
    scope = Scope("any", deny_extensions=[".ZIP", "pdf"])
    assert scope.verdict(canonical("http://a.example/x.Zip?y")) == "scope: extension .zip"
    assert not _in(scope, "http://user@a.example/x.pdf")
    assert _in(scope, "http://a.example/x?file=y.zip")
    assert _in(scope, "http://a.zip/")
    assert _in(scope, "http://a.example/zip")
    assert _in(scope, "http://a.example/x.zip/y")


@pytest.mark.parametrize("pattern", ["(", "[a", r"(?=x)", r"(a)\1", "a{2000}{2000}"])
@pytest.mark.parametrize("which", ["allow", "deny"])
def test_an_invalid_pattern_is_refused_and_named(which: str, pattern: str) -> None:
    with pytest.raises(InvalidLimit, match=which) as caught:
        Scope(
            "any",
            allow=["fine", pattern] if which == "allow" else (),
            deny=["fine", pattern] if which == "deny" else (),
        )
    assert repr(pattern) in str(caught.value)


def test_other_invalid_options_are_refused_and_named() -> None:
    with pytest.raises(InvalidLimit, match="galaxy"):
        Scope("galaxy")
    with pytest.raises(InvalidLimit, match="a/b"):
        Scope("any", deny_extensions=["a/b"])
    with pytest.raises(InvalidLimit, match="deny pattern 7"):
        Scope("any", deny=[7])  # type: ignore[list-item]


def test_a_pattern_with_catastrophic_backtracking_takes_linear_time() -> None:
    # A backtracking engine would not finish in the age of the universe.
    scope = Scope("any", deny=[r"(a+)+$", r"(a|aa)+b", r"(.*)*x"])
    assert _in(scope, "http://e/" + "a" * 8000 + "!")


def test_patterns_that_are_too_large_together_are_refused() -> None:
    with pytest.raises(InvalidLimit, match="pattern"):
        Scope("any", deny=["".join(f"(a{{{n}}}|b)" for n in range(500, 900))] * 50)


def test_endless_subdomains_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.urls.scope._REMEMBERED", 100)
    scope = Scope("domain", _seeds("http://a.example/"))
    for n in range(1000):
        assert _in(scope, f"http://s{n}.a.example/")
    assert len(scope._known) <= 100


@given(st.from_regex(r"https?://[a-z0-9.\-]{1,20}(:[0-9]{1,4})?/[!-~]{0,40}", fullmatch=True), st.text(max_size=8))
def test_every_url_gets_a_verdict_and_seeds_are_inside_their_own_scope(url: str, name: str) -> None:
    try:
        target = canonical(url)
    except InvalidUrl:
        return
    for reach in ("host", "domain", "prefix", "any"):
        assert Scope(reach, [target]).verdict(target) == ""
    registrable_domain(name)
