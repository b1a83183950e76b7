"""Directory listings of FTP servers: their entries, in every format that servers use."""

from __future__ import annotations

import pytest

from shoal.parse.ftp_listing import MAX_NAMES, links
from shoal.urls.canonical import canonical

HERE = "ftp://ftp.example/pub/"


def names(body: bytes) -> list[str]:
    return [url.removeprefix(HERE) for url in links(body, url=HERE)]


def test_facts_of_mlsd_are_read():
    body = (
        b"type=cdir;modify=20260101000000;perm=el; .\r\ntype=pdir; ..\r\n"
        b"Type=dir;modify=20260101000000; linux\r\ntype=file;size=12; a name; with = signs.txt\r\n"
        b"size=3;  leading space\r\ntype=OS.unix=slink:/x; link\r\n"
    )
    assert names(body) == ["linux/", "a%20name%3B%20with%20%3D%20signs.txt", "%20leading%20space", "link"]


def test_the_format_of_ls_is_read():
    body = (
        b"total 12\r\n"
        b"drwxr-xr-x   2 ftp      ftp          4096 Jan 01 12:00 dir\r\n"
        b"-rw-r--r--   1 ftp      ftp            12 Dec 31  2019 a file.txt\r\n"
        b"-rw-r--r--+  1 ftp                     12 Dec 31  2019 no-group\r\n"
        b"lrwxrwxrwx   1 ftp      ftp             3 Jan 01 12:00 link -> dir\r\n"
        b"-rw-r--r--   1 ftp      ftp            12 31 Dez 12:00 localized\r\n"
        b"-rw-r--r--   1 root root 12 2026-01-01 12:00 iso\n"
        b"-rw-r--r--   1 root root 12 2026-01-01 12:00:01.5 +0000\n"
        b"drwxr-xr-x   2 ftp      ftp          4096 Jan 01 12:00 .\r\n"
        b"brw-r--r--   1 root root 8, 1 Jan 01 12:00 device\r\n"
        b"-rw-r--r--   1 ftp      ftp            12 Jan 01 12:00 2019\r\n"
    )
    assert names(body) == ["dir/", "a%20file.txt", "no-group", "link", "localized", "iso", "%2B0000", "2019"]


def test_the_format_of_dos_is_read():
    body = b"01-16-26  02:37PM       <DIR>          My Folder\r\n01-16-2026  14:37            1234 a.zip\r\n"
    assert names(body) == ["My%20Folder/", "a.zip"]


def test_names_are_bytes_and_cannot_leave_the_folder():
    body = b"".join(
        b"type=file; %s\n" % name
        for name in (b"\xe9.txt", "é".encode(), b"../up", b"a/b", b"%2e%2e", b"a#b?c", b"nul\0", b"tab\t", b"x;type=d")
    )
    assert names(body) == ["%E9.txt", "%C3%A9", "%252e%252e", "a%23b%3Fc", "x%3Btype%3Dd"]
    for url in links(body, url=HERE):
        assert canonical(url).url == url


def test_a_listing_without_end_is_cut():
    body = b"".join(b"type=file; %d\n" % number for number in range(MAX_NAMES + 10))
    assert len(links(body, url=HERE)) == MAX_NAMES


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\n\n", b"-rw-r--r--", b"drwxr-xr-x 1 2 3 4 5 6 7 8 9", b"01-01-20", b"01-01-20 1 2", b"type=file;",
        b"<html><a href=x>x</a></html>", b"\xff" * 5000, b"-rwxrwxrwx " + b"1 " * 5000, b"type=dir; " + b"x" * 5000,
        b"a=b;" * 1000 + b"x",
    ],
)  # fmt: skip
def test_text_that_is_not_a_listing_gives_no_entries(body):
    assert names(body) == []
