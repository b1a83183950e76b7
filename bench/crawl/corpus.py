"""The pages to crawl: Debian's documentation, about 24,000 pages of HTML with 37 KB on average."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.system.documents import CACHE, POSTGRESQL, PYTHON, Tree

DJANGO = Tree("python-django-doc", "usr/share/doc/python-django-doc/html")
PANDAS = Tree("python-pandas-doc", "usr/share/doc/python-pandas-doc/html")
JAVA = Tree("default-jdk-doc", "usr/share/doc/openjdk-*-jre-headless", start="/api/index.html")
CPP = Tree("cppreference-doc-en-html", "usr/share/cppreference/doc/html/en")
LIBSTDCPP = Tree("libstdc++-12-doc", "usr/share/doc/gcc-12-base/libstdc++")

# 2,400 pages of 40 KB. A slow crawler crawls them from one address, a fast one from several, so that all crawlers read
# the same mix of pages to the end, each page once per address.
MIX = (PYTHON, POSTGRESQL, DJANGO)
ALL = (*MIX, PANDAS, JAVA, CPP, LIBSTDCPP)


def unpack(trees: tuple[Tree, ...]) -> None:
    """Download the trees that are not in the cache."""
    lacking = [tree.package for tree in trees if not (CACHE / tree.package).exists()]
    if lacking:
        subprocess.run([str(Path(__file__).parents[2] / "tests/documents"), *lacking], check=True)


def pages(tree: Tree) -> int:
    """The number of HTML pages in the folder. Links lead to nearly all of them."""
    return sum(1 for path in tree.path.rglob("*.html"))
