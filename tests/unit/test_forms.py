"""Forms as browsers submit them: which fields, which values, in which encoding, where to."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest

from shoal import Follow, Page
from shoal.errors import InvalidInput
from shoal.model.response import Response
from shoal.parse.html import markup_of, parse, tree_of
from shoal.spider.follow import ready

URL = "http://shop.example/a/list?x=1"


def _page(html: str, content_type: str = "text/html; charset=utf-8") -> Page:
    body = html.encode("utf-8" if "utf-8" in content_type else "windows-1252")
    response = Response(url=URL, status=200, headers=(("content-type", content_type),), body=body)
    return Page(
        response, parsed=parse(body, url=URL, content_type=content_type),
        markup=lambda: markup_of(body, content_type), tree=tree_of, depth=0, priority=0, data={}, spider="S",
    )  # fmt: skip


def _fields(html: str, **how: Any) -> list[tuple[str, str]]:
    return list(_page(f"<form>{html}</form>").form(**how).fields)


def _body(follow: Follow) -> list[tuple[str, str]]:
    return parse_qsl(bytes(ready(follow).body).decode(), keep_blank_values=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("html", "fields"),
    [
        ('<input name=a value=1><input name=b><input value=x>', [("a", "1"), ("b", "")]),
        ('<input type=hidden name=token value="x&amp;y">', [("token", "x&y")]),
        ('<input type=checkbox name=a><input type=checkbox name=b checked><input type=checkbox name=c value=3 checked>',
         [("b", "on"), ("c", "3")]),
        ('<input type=radio name=a value=1><input type=radio name=a value=2 checked>', [("a", "2")]),
        ('<select name=a><option value=1>one<option value=2 selected>two</select>', [("a", "2")]),
        ('<select name=a><option disabled>none<option> one  more </select>', [("a", "one more")]),
        ('<select name=a><option value="">all<option value=1>one</select>', [("a", "")]),
        ('<select name=a multiple><option selected>1<option>2<option selected>3</select>', [("a", "1"), ("a", "3")]),
        ('<select name=a multiple><option>1</select><select name=b></select>', []),
        ('<select name=a><optgroup disabled><option>1</optgroup><option>2</select>', [("a", "2")]),
        ('<textarea name=a>\nline 1\nline &lt;2&gt;</textarea>', [("a", "line 1\nline <2>")]),
        ('<input name=a disabled value=1><fieldset disabled><legend><input name=b value=2></legend><input name=c>'
         '</fieldset>', [("b", "2")]),
        ('<input type=submit name=s value=go><button name=t value=1>other</button>', [("s", "go")]),
        ('<input type=reset name=r><button type=button name=b></button><button name=t value=1></button>', [("t", "1")]),
        ('<input type=image name=i src=x>', [("i.x", "0"), ("i.y", "0")]),
        ('<input type=file name=f>', [("f", "")]),
        ('<input type=hidden name=_charset_>', [("_charset_", "utf-8")]),
        ('<input name=a><object name=o></object><output name=p>1</output>', [("a", "")]),
    ],
)  # fmt: skip
def test_the_fields_are_those_that_a_browser_sends(html: str, fields: list[tuple[str, str]]) -> None:
    assert _fields(html) == fields


def test_at_most_one_button_is_pressed() -> None:
    html = "<input name=a value=1><button name=b value=1>1</button><button name=b value=2 class=second>2</button>"
    assert _fields(html) == [("a", "1"), ("b", "1")]
    assert _fields(html, button=".second") == [("a", "1"), ("b", "2")]
    assert _fields(html, button=False) == [("a", "1")]
    with pytest.raises(InvalidInput, match=r"No button of the form on \S+ matches '.third'"):
        _fields(html, button=".third")


def test_a_form_is_selected_directly_or_by_an_element_inside_it() -> None:
    page = _page(
        "<form id=one action=/one><input name=a></form><form id=two method=post action=two><input name=q></form>"
        "<input name=far form=two value=1><p>no form</p>"
    )
    assert (page.form().action, page.form().method) == ("http://shop.example/one", "GET")
    for css in ("#two", "form[method=post]", "[name=q]", "[name=far]"):
        form = page.form(css)
        assert (form.action, form.method) == ("http://shop.example/a/two", "POST")
        assert form.fields == (("q", ""), ("far", "1"))
    with pytest.raises(InvalidInput, match="matches <p>, which is in no form"):
        page.form("p")
    with pytest.raises(InvalidInput, match=r"No element of http://shop.example\S+ matches 'form.login'"):
        page.form("form.login")


def test_form_controls_between_table_rows_belong_to_the_form() -> None:
    page = _page(
        "<table><form action=/t><tr><td><input name=a value=1></td></tr></form></table><form><input name=b></form>"
    )
    assert page.form().fields == (("a", "1"),)
    assert page.form("[name=b]").fields == (("b", ""),)


def test_submitting_changes_adds_and_removes_fields() -> None:
    page = _page(
        "<form method=post action='/login#top'><input type=hidden name=token value=t><input name=user><input name=user>"
        "<input name=go value=1></form>"
    )
    follow = page.submit(fields={"user": "ann", "go": None, "new": ["1", 2]}, callback="inside", priority=4)
    assert (follow.url, follow.method, follow.callback, follow.priority) == (
        "http://shop.example/login#top", "POST", "inside", 4,
    )  # fmt: skip
    assert follow.headers == {"Content-Type": "application/x-www-form-urlencoded"}
    assert _body(follow) == [("token", "t"), ("user", "ann"), ("new", "1"), ("new", "2")]


def test_a_get_form_replaces_the_query_of_its_action_url() -> None:
    follow = _page('<form action="/find?old=1"><input name=q value="a b"></form>').submit(fields={"q": "ü&"})
    assert (follow.url, ready(follow).method) == ("http://shop.example/find?q=%C3%BC%26", "GET")
    # Without an action, it is the page itself.
    assert _page("<form><input name=q></form>").submit().url == "http://shop.example/a/list?q="


def test_a_button_may_override_the_action_and_the_method() -> None:
    page = _page("<form action=/a><button formaction=/b formmethod=post name=x value=1>x</button></form>")
    assert (page.submit().url, page.submit().method) == ("http://shop.example/b", "POST")
    assert page.submit(button=False).url == "http://shop.example/a"


def test_values_are_sent_in_the_encoding_of_the_page() -> None:
    html = "<form method=post{}><input name=q></form>"
    latin = _page(html.format(""), "text/html; charset=windows-1252").submit(fields={"q": "é€Ж\n"})
    assert bytes(latin.body) == b"q=%E9%80%26%231046%3B%0D%0A"  # type: ignore[arg-type]
    form = _page(html.format(" accept-charset='no-such utf-8'"), "text/html; charset=windows-1252")
    assert bytes(form.submit(fields={"q": "é"}).body) == b"q=%C3%A9"  # type: ignore[arg-type]


def test_submitting_a_multipart_form_twice_gives_the_same_request() -> None:
    page = _page(
        "<form method=post enctype=multipart/form-data><input name='a\"b' value=1><input type=file name=f></form>"
    )
    first, second = page.submit(), page.submit()
    assert first.body == second.body
    boundary = first.headers["Content-Type"].removeprefix("multipart/form-data; boundary=").encode()
    assert first.body == (
        b'--%s\r\nContent-Disposition: form-data; name="a%%22b"\r\n\r\n1\r\n--%s\r\nContent-Disposition: form-data; '
        b'name="f"; filename=""\r\nContent-Type: application/octet-stream\r\n\r\n\r\n--%s--\r\n'
    ) % (boundary, boundary, boundary)


def test_a_plain_text_form_is_sent_as_lines() -> None:
    follow = _page("<form method=post enctype=text/plain><input name=a value='1 2'></form>").submit()
    assert (follow.body, follow.headers) == (b"a=1 2\r\n", {"Content-Type": "text/plain; charset=utf-8"})
