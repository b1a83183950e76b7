"""Pages are escaped by construction: no value can become markup, a script, a style or a foreign address."""

from __future__ import annotations

import pytest

from shoal.api.dashboard.components import foreign, outside, path
from shoal.api.dashboard.html import E, render

HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def test_text_and_attributes_are_escaped() -> None:
    html = render(E.p(HOSTILE, title=HOSTILE))
    assert html.count("<") == 2
    assert html.count('"') == 2
    assert "&lt;script&gt;" in html


def test_an_attribute_that_would_run_a_script_is_refused() -> None:
    for name in ("onclick", "style", "srcdoc", "onload", "a b", "x="):
        with pytest.raises(ValueError, match="not allowed"):
            E.p(**{name: "alert(1)"})


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "//evil.example/", "vbscript:x"]
)
def test_a_link_that_is_not_a_web_page_is_omitted(address: str) -> None:
    for name in ("href", "src", "action", "formaction"):
        assert render(E.a("x", **{name: address})) == "<a>x</a>"
    assert "href" not in render(outside(address))


def test_invisible_characters_are_shown() -> None:
    assert render(foreign("a\u202ecod.exe\u2066\x00\x1b")) == "<bdi>a\ufffdcod.exe\ufffd\ufffd\ufffd</bdi>"


def test_a_long_text_is_shortened_and_shown_in_full_on_hover() -> None:
    html = render(foreign("x" * 10_000))
    assert len(html) < 2400
    assert "…" in html


def test_a_path_is_quoted() -> None:
    assert path("hosts", "a/../b?c#d", url="x&y=z") == "/hosts/a%2F..%2Fb%3Fc%23d?url=x%26y%3Dz"
