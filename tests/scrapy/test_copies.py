"""Copies of a start request are separate requests: retries, redirects, and requests that a callback yields again."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from tests.scrapy.processes import project
from tests.servers import wait_until
from tests.site.responses import Response, page, redirect
from tests.site.site import Site

pytestmark = pytest.mark.full


_NOT_YET = {
    "a retry": Response(status=503, body="busy"),
    "a redirect to itself": redirect("/"),
    "a request that is yielded again": page(title="Not yet"),
}


def test_a_start_page_that_is_not_ready_is_requested_again_by_its_process(
    scrapy: str, site: Site, tmp_path: Path
) -> None:
    """What start() yields counts once for the fleet. These come from there too, and each of them counts."""
    settings = {"DOWNLOAD_DELAY": 0.5, "RETRY_TIMES": 9}
    with contextlib.ExitStack() as stack:
        running = []
        for name, response in _NOT_YET.items():
            host = site.take(1)[0]
            url = site.at(host, "/", response, response, response, response, response, page())
            here = stack.enter_context(project(tmp_path / name, scrapy=scrapy, **settings))
            running.append((name, here, host, url, here.start("waiting", start=url)))
        for name, _, host, _, first in running:
            wait_until(lambda: len(site.requests(host)) >= 2, name)  # noqa: B023 - it is called here
            first.popen.send_signal(signal.SIGTERM)
        for _, here, _, url, first in running:
            assert "Closing spider (shutdown)" in first.end()
            assert not here.items(), "there is something left to do"
            for _ in range(2):
                here.start("waiting", start=url)
        for name, here, host, url, _ in running:
            for process in here.living():
                process.end()
            assert here.keys() == {url: 1}, name
            assert len(site.requests(host)) == 6, name
