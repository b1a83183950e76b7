"""A real Chromium for the tests of the dashboard, and a fleet whose pages it opens.

with chromium() as browser:
    page = browser.page(api)
    page.goto("/")

A page fails its test if it sends a request to any other host, breaks its Content-Security-Policy, or has an error in
its script.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.api.process import ApiProcess

# Skipping here skips the module that imports this one.
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
if os.environ.get("CI") != "true":
    pytest.importorskip("playwright", reason="playwright is not installed; run: pip install playwright")
    if not PROGRAM:
        pytest.skip("chromium is not installed; run: apt-get install chromium", allow_module_level=True)

# Root may not use Chromium's sandbox, and /dev/shm is small in containers.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
WAIT_MS = 120_000


@dataclass
class Opened:
    """A page of a browser, with what went wrong on it."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def wait_text(self, selector: str, text: str) -> None:
        """Wait until an element shows this text."""
        self.page.locator(selector).filter(has_text=text).first.wait_for(timeout=WAIT_MS)

    def wait_true(self, expression: str) -> None:
        """Wait until an expression is true. Playwright's own function needs `eval`, which the page's policy forbids."""
        deadline = time.monotonic() + WAIT_MS / 1000
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"not true: {expression}"
            self.page.wait_for_timeout(50)


@dataclass
class Browser:
    browser: Any

    @contextlib.contextmanager
    def page(self, api: ApiProcess, **options: Any) -> Iterator[Opened]:
        """A page in a profile of its own. Its paths are those of this server."""
        context = self.browser.new_context(base_url=api.url, **options)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        opened = Opened(page)

        def requested(request: Any) -> None:
            opened.requests.append(request.url)
            if urlsplit(request.url).netloc != f"{api.host}:{api.port}":
                opened.problems.append(f"a request to {request.url}")

        page.on("request", requested)
        page.on("pageerror", lambda error: opened.problems.append(f"an error in the script: {error}"))
        page.on(
            "console",
            lambda message: opened.problems.append(message.text) if "Content Security Policy" in message.text else None,
        )
        try:
            yield opened
            assert not opened.problems, opened.problems
        finally:
            context.close()


@contextlib.contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=[*FLAGS, *flags])
        try:
            yield Browser(browser)
        finally:
            browser.close()


def sign_in(opened: Opened, token: str) -> None:
    opened.page.goto("/")
    opened.page.fill("#token", token)
    opened.page.click("text=Sign in")
    opened.page.wait_for_selector("nav")
