"""The spiders of a command's workers: the spiders on the command line, or all registered spiders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.settings import Settings
from shoal.spider import Spider, installed, load, load_all, name_of, unique
from shoal.worker.crawl_context import CALLER


class Chosen(NamedTuple):
    """The spiders to load.

    references  by spider name
    classes     by spider name
    plain       whether crawls without a spider are served
    """

    references: dict[str, str]
    classes: dict[str, type[Spider]]
    plain: bool


def choose(typed: Sequence[str], settings: Settings, *, alone: bool = True) -> Chosen:
    """Return the spiders of the command line, and unless `alone` also the registered ones.

    Loads them, so that an error in a spider is reported before anything starts.
    """
    registered = {**installed(), **settings.spiders}
    if not typed:
        return Chosen(registered, load_all(registered), plain=True)
    references = unique(
        (text, registered[text]) if text in registered else (name_of(load(text)), _absolute(text)) for text in typed
    )
    if not alone:
        references |= {name: reference for name, reference in registered.items() if name not in references}
    return Chosen(references, load_all(references), plain=False)


def spider_flag(spider: str, settings: Settings) -> str:
    """Return the --spider argument for a crawl's spider, '' if it has none or workers load it anyway."""
    # A crawl from Python is resumed by the program that has the spider.
    known = not spider or spider.startswith(CALLER) or spider in {**installed(), **settings.spiders}
    return "" if known else f"FILE.py:{spider}"


def _absolute(reference: str) -> str:
    """Return a reference that is valid in any working directory."""
    where, _, name = reference.rpartition(":")
    return f"{Path(where).resolve()}:{name}" if where.endswith(".py") else reference
