"""Accessibility of every screen: axe-core finds no violation, and keyboard and phone reach everything."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.api.auth import create_token
from tests.api.process import serve_api
from tests.dashboard.browser import Browser, Opened
from tests.dashboard.fleet import Fleet, fleet
from tests.dashboard.screenshots import populate, screens

pytestmark = pytest.mark.full

SOURCE = importlib.util.find_spec("axe_playwright_python")
if SOURCE is None and os.environ.get("CI") != "true":
    pytest.skip("axe-core is not installed; run: pip install axe-playwright-python", allow_module_level=True)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, dict[str, str]]]:
    with fleet(tmp_path_factory.mktemp("shown"), hosts=16) as running:
        yield running, screens(*populate(running))


def violations(opened: Opened) -> list[str]:
    assert SOURCE is not None
    assert SOURCE.origin
    # Past the page's policy, as a tool of the browser does.
    opened.page.evaluate((Path(SOURCE.origin).parent / "axe.min.js").read_text())
    violated = opened.page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    return [f"{rule}: {nodes[:3]}" for rule, nodes in violated]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_on_any_screen(
    browser: Browser, shown: tuple[Fleet, dict[str, str]], scheme: str
) -> None:
    running, paths = shown
    problems_by_screen = {}
    with browser.page(running.api, color_scheme=scheme) as opened:
        for name, path in paths.items():
            opened.page.goto(path)
            for confirm in opened.page.locator("details.confirm").all():
                confirm.evaluate("element => { element.open = true }")
            if problems := violations(opened):
                problems_by_screen[name] = problems
        opened.page.goto(paths["records"])
        opened.page.click("tbody a")
        opened.wait_text("h1", "Record")
        problems_by_screen |= {"record": problems} if (problems := violations(opened)) else {}
        opened.page.goto("/crawls/never")
        problems_by_screen |= {"refusal": problems} if (problems := violations(opened)) else {}
    assert not problems_by_screen


def test_axe_finds_no_violation_on_the_sign_in_page(browser: Browser, tmp_path: Path) -> None:
    with (
        serve_api(tmp_path, settings=f'[tokens]\nann = "{create_token("read")[1]}"\n') as api,
        browser.page(api) as opened,
    ):
        opened.page.goto("/")
        opened.page.wait_for_url("**/sign-in?next=/")
        opened.page.fill("#token", "wrong")
        opened.page.click("text=Sign in")
        opened.wait_text("[role=alert]", "Invalid token")
        assert not violations(opened)


def test_no_screen_is_wider_than_a_phone(browser: Browser, shown: tuple[Fleet, dict[str, str]]) -> None:
    running, paths = shown
    with browser.page(running.api, viewport={"width": 390, "height": 844}) as opened:
        wide = [
            name
            for name, path in paths.items()
            if opened.page.goto(path) and opened.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        ]
    assert not wide


def test_a_crawl_is_paused_by_keyboard_alone(browser: Browser, shown: tuple[Fleet, dict[str, str]]) -> None:
    running, _ = shown
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/news-archive")
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.className") == "skip"
        opened.page.keyboard.press("Enter")
        for _ in range(10):
            opened.page.keyboard.press("Tab")
            if opened.page.evaluate("document.activeElement.innerText") == "Pause":
                break
        opened.page.keyboard.press("Enter")
        opened.wait_text(".note.good", "paused")
    running.api.client.resume("news-archive")


def test_the_first_page_is_small(browser: Browser, shown: tuple[Fleet, dict[str, str]]) -> None:
    """All that a browser loads for it, uncompressed."""
    running, _ = shown
    with browser.page(running.api) as opened:
        sizes = []
        opened.page.on("response", lambda response: sizes.append(response) if "/live" not in response.url else None)
        opened.page.goto("/")
        total = sum(len(response.body()) for response in sizes)
        assert len(sizes) >= 3
        assert total < 150_000
