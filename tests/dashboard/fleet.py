"""A fleet for the dashboard's tests: real workers on a real site, and `shoal serve`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.api.process import MODULE, ApiProcess, serve_api
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls


@dataclass
class Fleet:
    crawls: Crawls
    api: ApiProcess

    def site(self, pages: int = 3, *, failing: int = 0) -> str:
        """A new host with some pages, and links to some that are not there. Returns its URL."""
        (host,) = self.crawls.site.take()
        links = [f"/{number}" for number in range(pages - 1)] + [f"/gone/{number}" for number in range(failing)]
        self.crawls.site.at(host, "/", page(*links, title="Start"))
        for number in range(pages - 1):
            self.crawls.site.at(host, f"/{number}", page(title=f"Page {number}"))
        return f"http://{host}/"


@contextlib.contextmanager
def fleet(
    folder: Path, *, hosts: int = 40, workers: int = 1, settings: str = "", token: str = "",
    worker_settings: dict[str, object] | None = None, program: Sequence[str] = MODULE,
) -> Iterator[Fleet]:  # fmt: skip
    output = folder / "default.db"
    chosen = {"outputs": {"default": str(output)}, **(worker_settings or {})}
    with open_crawls(folder, hosts=hosts, workers=workers, settings=chosen, shared=True) as crawls:
        settings = f'[api]\nrate = 100000\n[outputs]\ndefault = "{output}"\n{settings}'
        where = ("--folder", folder / "store")
        with serve_api(folder / "served", *where, settings=settings, token=token, program=program) as api:
            yield Fleet(crawls, api)
