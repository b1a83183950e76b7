"""`shoal fetch`: one page as a crawl would see it."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import on_request, on_spec, spec_fields
from shoal.cli.ui.console import fail, report
from shoal.errors import InvalidInput

if TYPE_CHECKING:
    from shoal.model.response import Response
    from shoal.operations.single_page import FetchedPage, SpiderResult

# Links and characters of text that are shown; --json has all.
_LINKS, _CHARACTERS = 20, 1000
_POLL_SECONDS = 0.3


@click.command("fetch", short_help="Fetch one page and show what a crawl would see.")
@click.argument("url", metavar="URL")
@click.option("--spider", metavar="FILE.py:CLASS", default="", help="Show the items and links that this spider yields.")
@click.option(
    "--callback", metavar="METHOD", default="parse", help="Method of the spider that gets the page.  [default: parse]"
)
@on_spec("crawl", "arguments")
@click.option("--watch", is_flag=True, help="Show the items again whenever a file of the spider's folder changes.")
@click.option("--body", is_flag=True, help="Print only the body of the response.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with everything.")
@on_request
def command(
    url: str, spider: str, callback: str, watch: bool, body: bool, as_json: bool, **typed: Any
) -> int:  # fmt: skip
    """Fetch one page and show what a crawl would see: status, timing, headers, robots.txt, links, text and record.

    Redirects are followed, robots.txt is obeyed, and requests to one host keep the delay. No store is used and nothing
    is stored. The exit code is 1 if the status is 400 or higher.
    """
    from shoal.cli.single_fetch import SingleFetch
    from shoal.spider import check_arguments, load

    arguments = spec_fields("crawl", typed).get("arguments", {})
    if watch and not spider.partition(":")[0].endswith(".py"):
        raise InvalidInput("--watch needs --spider FILE.py:CLASS: the file to watch.")
    # A compiled file of the same second and size would hide a change.
    sys.dont_write_bytecode = sys.dont_write_bytecode or watch
    if spider:
        # An error in the spider is reported before anything is requested.
        check_arguments(load(spider), arguments)
    with SingleFetch(url, typed) as single:
        fetched = single.fetch()
    if watch:
        return _watch(fetched, spider, callback, arguments)
    result = _run(fetched, spider, callback, arguments) if spider and fetched.response.status < 300 else None
    if body:
        sys.stdout.buffer.write(fetched.response.body)
    elif as_json:
        from shoal.cli.ui.console import printable_json

        click.echo(printable_json(_as_dict(fetched, result)))
    else:
        _render(fetched, result)
    return 1 if fetched.response.status >= 400 else 0


def _run(fetched: FetchedPage, spider: str, callback: str, arguments: dict[str, str]) -> SpiderResult:
    from shoal.operations.single_page import run_spider
    from shoal.spider import load
    from shoal.worker.spider_runner import SpiderFailed

    try:
        return asyncio.run(run_spider(load(spider), fetched.response, callback=callback, arguments=arguments))
    except SpiderFailed as error:
        # Its traceback is on stderr already.
        raise InvalidInput(f"The spider failed on {fetched.response.url}: {error.reason}.") from None


def _watch(fetched: FetchedPage, spider: str, callback: str, arguments: dict[str, str]) -> int:
    """Run the spider on the same page after each change of its code, until Ctrl-C."""
    folder = Path(spider.rpartition(":")[0]).resolve().parent
    before: dict[Path, int] = {}
    interrupted = []

    def interrupt(*_: object) -> None:
        interrupted.append(True)
        raise KeyboardInterrupt

    # The exception alone could be treated as an error of the spider.
    signal.signal(signal.SIGINT, interrupt)
    while not interrupted:
        modified = {path: path.stat().st_mtime_ns for path in folder.glob("*.py") if path.exists()}
        if modified != before:
            before = modified
            for name, module in list(sys.modules.items()):
                # Modules beside the spider are imported again, too.
                if Path(getattr(module, "__file__", None) or "/").parent == folder:
                    del sys.modules[name]
            try:
                _render_result(_run(fetched, spider, callback, arguments))
            except InvalidInput as error:
                fail(str(error))
            report(f"Watching {folder} for changes. Press Ctrl-C to stop.")
        time.sleep(_POLL_SECONDS)
    raise KeyboardInterrupt


def _as_dict(fetched: FetchedPage, result: SpiderResult | None) -> dict[str, Any]:
    import msgspec

    response = fetched.response
    described = {
        "url": response.url, "status": response.status, "redirects": [list(hop) for hop in fetched.chain],
        "http_version": response.http_version, "address": response.address,
        "bytes_received": response.bytes_received, "timings": msgspec.structs.asdict(response.timings),
        "headers": [list(header) for header in response.headers],
        "robots": {
            "allowed": fetched.robots.allowed, "file": fetched.robots.file, "text": fetched.robots.text,
            "crawl_delay_seconds": fetched.robots.crawl_delay_seconds,
        },
        "links": list(fetched.links), "record": fetched.record.to_dict(),
    }  # fmt: skip
    if result is not None:
        described["items"] = list(result.items)
        described["follows"] = [msgspec.to_builtins(follow) for follow in result.follows]
    return described


def _render(fetched: FetchedPage, result: SpiderResult | None) -> None:
    from shoal.cli.ui.console import pluralize, size, visible

    response, record = fetched.response, fetched.record
    timings = response.timings
    steps = (("lookup", timings.name_lookup), ("connect", timings.connect), ("tls", timings.tls))
    parts = [f"{name} {seconds:.3f}" for name, seconds in (*steps, ("first byte", timings.first_byte)) if seconds]
    rows = [
        ("url", response.url), *(("redirect", f"{status} from {url}") for url, status in fetched.chain),
        ("status", f"{response.status}, {_protocol(response)}, {response.address}"),
        ("time", f"{timings.total:.3f} s ({', '.join(parts)})"),
        ("received", f"{size(response.bytes_received)}, {size(len(response.body))} decoded"),
        ("robots.txt", fetched.robots.text),
        *(("header", f"{name}: {value}") for name, value in response.headers),
        *((name, str(getattr(record, name))) for name in ("title", "description", "language", "canonical", "robots")
          if getattr(record, name)),
        ("links", f"{pluralize(len(fetched.links), 'link')} to follow, of {record.links:,} on the page"),
        *(("", url) for url in fetched.links[:_LINKS]),
    ]  # fmt: skip
    if len(fetched.links) > _LINKS:
        rows.append(("", f"... and {len(fetched.links) - _LINKS:,} more"))
    text = record.text[:_CHARACTERS]
    rows += [("text" if number == 0 else "", line) for number, line in enumerate(text.splitlines())]
    if len(record.text) > _CHARACTERS:
        rows.append(("", f"... and {len(record.text) - _CHARACTERS:,} more characters"))
    for word, line in rows:
        click.echo(f"{word:<11} {visible(line)}".rstrip())
    if result is not None:
        _render_result(result)


def _protocol(response: Response) -> str:
    return f"HTTP/{response.http_version}" if response.http_version else "no HTTP"


def _render_result(result: SpiderResult) -> None:
    import msgspec

    from shoal.cli.ui.console import pluralize, visible

    rows = [("items", pluralize(len(result.items), "item"))]
    rows += [("", msgspec.json.encode(item).decode()) for item in result.items]
    rows.append(("follows", pluralize(len(result.follows), "page")))
    rows += [("", follow.url + (f" -> {follow.callback}" if follow.callback else "")) for follow in result.follows]
    for word, line in rows:
        click.echo(f"{word:<11} {visible(line)}".rstrip())
