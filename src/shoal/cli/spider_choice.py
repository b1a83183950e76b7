"""Which spiders a command's workers have: those that were typed, or all that are registered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.settings import Settings
from shoal.spider import Spider, installed, load, load_all, name_of, unique
from shoal.worker.crawl_context import CALLER


class Chosen(NamedTuple):
    """Names and references, the classes, and whether crawls without a spider are served, too."""

    references: dict[str, str]
    classes: dict[str, type[Spider]]
    plain: bool


def choose(typed: Sequence[str], settings: Settings, *, alone: bool = True) -> Chosen:
    """The typed ones first, and `alone` or before those that are registered.

    Spiders are loaded here, too: what is wrong with one is said before anything starts.
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
    """What to type for a crawl's spider whose file is not known here: '' when there is none, or workers have it."""
    # One of a crawl of Python goes on by the program that has it.
    known = not spider or spider.startswith(CALLER) or spider in {**installed(), **settings.spiders}
    return "" if known else f"FILE.py:{spider}"


def _absolute(reference: str) -> str:
    """Also for a worker that works elsewhere."""
    where, _, name = reference.rpartition(":")
    return f"{Path(where).resolve()}:{name}" if where.endswith(".py") else reference
