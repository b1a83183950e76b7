"""Charsets by the HTML rules: the vectors of html5lib and web-platform-tests, and the order of the evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.parse.charset import PRESCAN_BYTES, charset, decode, in_utf8, prescan
from shoal.parse.encodings import CODECS, encoding_of
from shoal.parse.html import parse

# Public vectors, beside the checkout where they are kept.
DATA = Path(__file__).parents[3] / "shared" / "data"
HTML5LIB = DATA / "html5lib-tests" / "encoding"
WPT = DATA / "wpt" / "html" / "syntax" / "charset"
RESOURCES = DATA / "wpt" / "encoding" / "resources"

# WPT says what WebKit and Blink do; the standard's prescan, and html5lib's vectors with it, do not skip their content.
OTHERWISE = dict.fromkeys(("in-script", "in-style", "in-title"), "the standard's prescan reads text as tags")


def _present(path: Path) -> Path:
    if not path.exists():
        pytest.skip(
            f"{path.name} is absent: put the vectors of html5lib-tests and web-platform-tests beside the checkout"
        )
    return path


def _vectors(path: Path) -> list[tuple[bytes, str]]:
    cases = re.split(rb"(?:\A|\n)#data\n", path.read_bytes())[1:]
    pairs = (case.split(b"\n#encoding\n") for case in cases)
    return [(data, name.strip().decode().lower()) for data, name in pairs]


def test_the_prescan_finds_what_html5lib_finds() -> None:
    # `scripted/` is left out: its declaration is written by a script, and Shoal runs none.
    # `chardet/` is left out: it has no answers, only a text in Big5 for guessers.
    cases = [case for path in sorted(_present(HTML5LIB).glob("*.dat")) for case in _vectors(path)]
    assert len(cases) > 80
    wrong = []
    for data, expected in cases:
        name = charset(data)
        if name != expected:
            wrong.append((data, expected, name))
    assert not wrong


def test_a_declaration_takes_effect_where_it_does_in_browsers() -> None:
    wrong, right = [], 0
    for path in sorted(_present(WPT).glob("*.html")):
        page = path.read_bytes()
        declared = re.search(rb'assert_equals\(document.characterSet, "([^"]+)"\)', page)
        # "match" with the reference page, which shows a windows-1251 letter, or "mismatch" with it
        shown = re.search(rb'rel="?(match|mismatch)"?', page) if b"\xe6" in page else None
        # Declarations written by scripts are left out: Shoal runs none.
        if path.stem in OTHERWISE or b"document.write" in page or not (declared or shown):
            continue
        if declared:
            good = charset(page) == declared[1].decode().lower()
        else:
            good = ("Test: ж" in parse(page, url="http://a.example/").text) == (
                shown is not None and shown[1] == b"match"
            )
        right += good
        if not good:
            wrong.append(path.name)
    assert not wrong
    assert right >= 25


FRONTS = (
    "<!DOCTYPE html>|<!doctype html PUBLIC '-//W3C//DTD' \"x\">|<html>|<html lang=\"en\" xml:lang='a'>|"
    '<html lang="<x>">|<head>|<head x>| |\n|\x0b|a|<!--|-->|<meta charset="utf-8">|<META  CharSet=UTF-8 />|'
    "<meta charset=utf-8 x>|"
    '<meta charset="utf-8/>|<meta charset=utf-8/>|<meta name=x>|<meta charset=koi8-r>|<meta\x0bcharset=utf-8>|'
    '<meta http-equiv="Content-Type" content="text/html; charset=UTF-8" />|<title>|<meta charset=utf-8">'
)


@given(st.lists(st.sampled_from(FRONTS.split("|")), max_size=8))
def test_the_fast_path_to_the_charset_agrees_with_the_prescan(pieces: list[str]) -> None:
    body = "".join(pieces).encode()
    if prescan(body, PRESCAN_BYTES):
        assert charset(body) == prescan(body, PRESCAN_BYTES)
    else:
        assert charset(body) == "windows-1252"


def test_utf_32_is_not_supported_and_a_second_byte_order_mark_is_a_character() -> None:
    _present(RESOURCES)
    assert charset((RESOURCES / "utf-32-little-endian-bom.html").read_bytes()) == "utf-16le"
    assert charset((RESOURCES / "utf-32-big-endian-bom.html").read_bytes()) == "windows-1252"
    for name in ("utf-8", "utf-16be", "utf-16le"):
        page = (RESOURCES / f"two-boms-{name}.html").read_bytes()
        assert charset(page) == name
        assert decode(page, name)[0] == "\ufeff"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"\xef\xbb\xbf<meta charset=koi8-r>", "text/html; charset=gbk", "utf-8"),
        (b"<meta charset=koi8-r>", "text/html; charset=gbk", "gbk"),
        (b"<meta charset=koi8-r>", 'text/html; Charset = "GB2312"', "gbk"),
        (b"<meta charset=koi8-r>", "text/html; charset=nonsense", "koi8-r"),
        (b"<meta charset=utf-16>", "text/html", "utf-8"),
        (b"a", "text/html; charset=utf-16", "utf-16le"),
        (b'<?xml version="1.0" encoding="windows-1251"?><html>', "", "windows-1251"),
        (b"<\0?\0x\0m\0l\0", "", "utf-16le"),
        (b"<!--><meta charset=koi8-r>", "", "koi8-r"),
        (b"<title>" + b" " * 1024 + b"<meta charset=koi8-r></title>", "", "windows-1252"),
        (b"<title>a</title>" + b" " * 1024 + b"<meta charset=koi8-r>", "", "koi8-r"),
        ("<p>æ</p>".encode(), "", "utf-8"),
        ("<p>æ</p>".encode("latin-1"), "", "windows-1252"),
        ("<p>æ".encode()[:-1], "", "utf-8"),
        (b"", "", "windows-1252"),
    ],
)
def test_a_byte_order_mark_overrides_the_header_and_the_header_the_page(
    body: bytes, content_type: str, expected: str
) -> None:
    assert charset(body, content_type) == expected


def test_every_encoding_of_the_table_decodes_and_has_its_labels() -> None:
    for name in CODECS:
        assert encoding_of(name.upper()) == name
        assert decode(b"", name) == ""
        assert isinstance(decode(bytes(range(256)) * 2, name), str)
    assert encoding_of(" Latin1\n") == "windows-1252"
    assert encoding_of("iso-2022-kr") == "replacement"
    assert encoding_of("utf-7") == ""


def test_encodings_that_hide_markup_are_refused() -> None:
    page = parse(b"~{<a href=/x>~}", url="http://a.example/", content_type="text/html; charset=hz-gb-2312")
    assert page.text == "\ufffd"
    assert not page.links


@given(st.binary(max_size=300), st.sampled_from(sorted(CODECS)))
def test_any_bytes_in_any_encoding_become_text_that_can_be_stored(body: bytes, name: str) -> None:
    decode(body, name).encode()
    in_utf8(body, name)
    charset(body)


def test_a_prescan_of_unclosed_elements_terminates() -> None:
    for piece in (b"<!--", b"<a ", b"<meta charset='", b"<meta content=", b"<title>", b"</", b"<!", b"<?", b"< "):
        assert charset(piece * 100_000) == "windows-1252"
        assert charset(piece * 20_000 + b"\xff") == "windows-1252"
