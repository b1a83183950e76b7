"""Who may see and change what in the dashboard: sessions, roles, and pages of other sites."""

from __future__ import annotations

import contextlib
import http.server
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shoal.api.auth import create_token
from tests.api.process import ApiProcess, serve_api
from tests.dashboard.browser import Browser, chromium, sign_in
from tests.servers import server

pytestmark = pytest.mark.full

ROLES = ("read", "submit", "admin", "read:shop")
TOKENS = {role: create_token(role) for role in ROLES}
SETTINGS = "[api]\nrate = 100000\n[tokens]\n" + "".join(
    f'{role.replace(":", "-")} = "{line}"\n' for role, (_, line) in TOKENS.items()
)  # fmt: skip
EVIL = "evil.example"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as browser:
        yield browser


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with serve_api(tmp_path_factory.mktemp("signing"), settings=SETTINGS, token=TOKENS["admin"][0]) as api:
        api.ask("POST", "/v1/crawls", {"seeds": ["http://example.org/"], "name": "kept", "outputs": ["x"]})
        yield api


def state(api: ApiProcess, crawl: str = "kept") -> str:
    return str(api.client.crawl(crawl)["state"])


@pytest.mark.smoke
def test_a_wrong_token_gets_no_session_and_a_right_one_does(browser: Browser, api: ApiProcess) -> None:
    with browser.page(api) as opened:
        page = opened.page
        page.goto("/workers")
        assert "/sign-in?next=" in page.url
        page.fill("#token", TOKENS["admin"][0][:-1])
        page.click("text=Sign in")
        opened.wait_text("[role=alert]", "Invalid token")
        page.fill("#token", TOKENS["admin"][0])
        page.click("text=Sign in")
        page.wait_for_url("**/workers")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        # The session ID is not a token: the API refuses it, and it reveals nothing about the token.
        assert TOKENS["admin"][0] not in cookie["value"]
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate("fetch('/v1/crawls').then(r => r.status)") == 401
        page.click("text=Sign out")
        page.wait_for_url("**/sign-in")
        page.goto("/crawls")
        assert "/sign-in" in page.url


def test_signing_out_ends_the_session_on_the_server(api: ApiProcess) -> None:
    token = TOKENS["read"][0]
    form = f"token={token}&next=/crawls".encode()
    response = api.ask("POST", "/sign-in", form, Content_Type="application/x-www-form-urlencoded", Origin=api.url)
    assert (response.status, response.headers["location"]) == (303, "/crawls")
    cookie = response.headers["set-cookie"].partition(";")[0]
    assert api.ask("GET", "/crawls", Cookie=cookie, Accept="text/html").status == 200
    response = api.ask(
        "POST", "/sign-out", b"proof=wrong", Cookie=cookie, Content_Type="application/x-www-form-urlencoded"
    )
    assert response.status == 403
    assert api.ask("GET", "/crawls", Cookie=cookie).status == 200


def test_signing_in_never_redirects_to_another_server(api: ApiProcess) -> None:
    for following in ("//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        form = f"token={TOKENS['read'][0]}&next={following}".encode()
        response = api.ask("POST", "/sign-in", form, Content_Type="application/x-www-form-urlencoded")
        assert (response.status, response.headers["location"]) == (303, "/")


FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def signed_in(api: ApiProcess, token: str) -> str:
    """The cookie of a new session."""
    response = api.ask("POST", "/sign-in", f"token={token}".encode(), **FORM)
    return response.headers["set-cookie"].partition(";")[0]


def proof_of(api: ApiProcess, cookie: str) -> str:
    page = api.ask("GET", "/", Cookie=cookie, Accept="text/html").raw.decode()
    match = re.search(r'name="proof" value="(\w+)"', page)
    return match[1] if match else ""


def test_a_session_is_valid_at_every_server_of_a_store_until_it_or_its_token_ends(tmp_path: Path) -> None:
    def serve(name: str, settings: str = SETTINGS) -> contextlib.AbstractContextManager[ApiProcess]:
        return serve_api(tmp_path / name, "--store", store.url, settings=settings)

    def status(api: ApiProcess, cookie: str) -> int:
        return api.ask("GET", "/crawls", Cookie=cookie, Accept="text/html").status

    with server(tmp_path / "store") as store:
        with serve("two") as second:
            with serve("one") as first:
                ann, bob = (signed_in(first, TOKENS["submit"][0]) for _ in range(2))
                first.ask("POST", "/v1/crawls", {"seeds": ["http://a.test/"], "name": "kept", "outputs": ["x"]},
                          Authorization=f"Bearer {TOKENS['admin'][0]}")  # fmt: skip
                assert [status(api, cookie) for api in (first, second) for cookie in (ann, bob)] == [200] * 4
                # A page of one server, and its form at the other.
                assert second.ask("POST", "/crawls/kept/pause", f"proof={proof_of(first, ann)}".encode(), Cookie=ann,
                                  **FORM).headers["location"].startswith("/crawls/kept")  # fmt: skip
                assert first.ask("POST", "/crawls/kept/resume", f"proof={proof_of(first, bob)}".encode(), Cookie=ann,
                                 **FORM).status == 403  # fmt: skip
            assert (
                second.ask("POST", "/sign-out", f"proof={proof_of(second, bob)}".encode(), Cookie=bob, **FORM).status
                == 303
            )
            assert status(second, bob) == 303
        with serve("one") as restarted:
            assert (status(restarted, ann), status(restarted, bob)) == (200, 303)
            assert status(restarted, f"{ann}x") == 303
        others = SETTINGS.replace(TOKENS["submit"][1], create_token("submit")[1])
        with serve("without", others) as without:
            assert status(without, ann) == 303


@pytest.mark.parametrize("role", ROLES)
def test_each_role_sees_only_the_actions_that_it_may_perform(browser: Browser, api: ApiProcess, role: str) -> None:
    with browser.page(api) as opened:
        sign_in(opened, TOKENS[role][0])
        menu = opened.text("header nav").split("\n")
        assert ("New crawl" in menu) == (role in ("submit", "admin"))
        assert ("Audit trail" in menu) == (role == "admin")
        assert ("Workers" in menu) == (role != "read:shop")
        for path, allowed in (("/workers", role != "read:shop"), ("/hosts", role != "read:shop")):
            assert opened.page.goto(path).status == (200 if allowed else 403)
        if role == "read:shop":
            opened.page.goto("/")
            assert "kept" not in opened.text("main")
            assert opened.page.goto("/crawls/kept").status == 404
            return
        opened.page.goto("/crawls/kept")
        assert opened.page.locator("button", has_text="Pause").count() == (role != "read")


@pytest.mark.smoke
def test_a_change_needs_the_role_whatever_the_page_shows(browser: Browser, api: ApiProcess) -> None:
    with browser.page(api) as opened:
        sign_in(opened, TOKENS["read"][0])
        status = opened.page.evaluate(
            """async () => {
                const proof = document.querySelector("#act [name=proof]").value;
                const body = new URLSearchParams({ proof });
                return (await fetch("/crawls/kept/stop", { method: "POST", body })).status;
            }"""
        )
        assert status == 403
        assert state(api) == "running"
    assert "requires the role submit" in api.output()


def test_a_change_without_the_csrf_token_of_the_session_is_refused(browser: Browser, api: ApiProcess) -> None:
    with browser.page(api) as opened:
        sign_in(opened, TOKENS["admin"][0])
        for body in ("", "proof=", "proof=" + "0" * 64):
            status = opened.page.evaluate(
                """async (body) => (await fetch("/crawls/kept/stop", {
                    method: "POST", body, headers: { "Content-Type": "application/x-www-form-urlencoded" },
                })).status""",
                body,
            )
            assert status == 403
    assert state(api) == "running"


HOSTILE = """<!doctype html><title>hostile</title>
<form id="f" method="post" action="{target}/crawls/kept/stop" target="frame"><input name="proof" value="x"></form>
<form id="g" method="post" enctype="text/plain" action="{target}/v1/crawls/kept/stop" target="frame"></form>
<form id="h" method="post" action="{target}/v1/crawls" enctype="text/plain" target="frame">
<input name='{{"seeds":["http://example.org/"],"name":"stolen","x":"' value='"}}'></form>
<iframe name="frame"></iframe><iframe src="{target}/crawls/kept"></iframe><img src="{target}/crawls/kept">
<script>
const done = [];
async function run() {{
  for (const path of ["/crawls/kept/stop", "/v1/crawls/kept/stop", "/crawls/kept/pause"]) {{
    for (const mode of ["no-cors", "cors"]) {{
      const sent = {{ method: "POST", mode, credentials: "include", body: "proof=x" }};
      await fetch("{target}" + path, sent).catch(() => 0);
    }}
  }}
  for (const id of ["f", "g", "h"]) {{
    document.getElementById(id).submit();
    await new Promise((go) => setTimeout(go, 200));
  }}
  const read = await fetch("{target}/crawls/kept", {{ credentials: "include" }}).then((r) => r.text()).catch(() => "");
  document.title = "done:" + (read.includes("kept") ? "read" : "blind");
}}
run();
</script>"""


class _Hostile(http.server.BaseHTTPRequestHandler):
    def __init__(self, target: str, *rest: object) -> None:
        self.target = target
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(HOSTILE.format(target=self.target).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Starts servers of hostile pages against an address; returns a function by `hostile(target)`."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(target: str) -> int:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Hostile, target))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start  # type: ignore[misc]
    for each in servers:
        each.shutdown()
        each.server_close()


def visit(browser: Browser, url: str, cookies: list[dict[str, object]] | None = None) -> str:
    context = browser.browser.new_context()
    try:
        if cookies:
            context.add_cookies(cookies)
        page = context.new_page()
        page.goto(url)
        page.wait_for_function("document.title.startsWith('done')")
        return str(page.title())
    finally:
        context.close()


@pytest.mark.smoke
@pytest.mark.parametrize("name", [EVIL, "127.0.0.1"])
def test_a_hostile_page_in_a_signed_in_browser_changes_and_reads_nothing(
    browser: Browser, api: ApiProcess, hostile, name: str
) -> None:
    """127.0.0.1 with another port is the same site, so its page even sends the session's cookie."""
    with browser.page(api) as opened:
        sign_in(opened, TOKENS["admin"][0])
        cookies = opened.page.context.cookies()
    assert visit(browser, f"http://{name}:{hostile(api.url)}/", cookies) == "done:blind"
    assert state(api) == "running"
    assert "stolen" not in [crawl["id"] for crawl in api.client.crawls()]


def test_a_hostile_page_cannot_use_a_server_without_tokens(browser: Browser, tmp_path: Path, hostile) -> None:
    with serve_api(tmp_path) as api:
        api.ask("POST", "/v1/crawls", {"seeds": ["http://example.org/"], "name": "kept", "outputs": ["x"]})
        for name in (EVIL, "127.0.0.1"):
            assert visit(browser, f"http://{name}:{hostile(api.url)}/") == "done:blind"
        # DNS rebinding: the page's own name leads to this server now, so that requests are of the same origin.
        context = browser.browser.new_context()
        page = context.new_page()
        for path in ("/", "/crawls/kept", "/v1/crawls", "/sign-in"):
            assert page.goto(f"http://{EVIL}:{api.port}{path}").status == 403
            assert "kept" not in page.content()
        # The refusal's own policy forbids even to send it.
        sent = "fetch('/crawls/kept/stop', {method: 'POST', body: 'proof=x'}).then(r => r.status, () => 403)"
        assert page.evaluate(sent) == 403
        context.close()
        assert state(api) == "running"
        assert [crawl["id"] for crawl in api.client.crawls()] == ["kept"]


def test_every_page_has_a_strict_policy(api: ApiProcess) -> None:
    response = api.ask("GET", "/sign-in", Accept="text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert b"<script>" not in response.raw
    assert b" style=" not in response.raw
    for path in ("/static/dashboard.css", "/static/dashboard.js", "/static/icon.svg"):
        assert api.ask("GET", path).status == 200
    assert api.ask("GET", "/static/../app.py").status == 404


def test_a_program_that_requests_the_root_gets_the_index(api: ApiProcess) -> None:
    assert api.ask("GET", "/").json["crawls"] == "/v1/crawls"
    assert api.ask("GET", "/", Accept="text/html,*/*").status == 303
