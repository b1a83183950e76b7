"""CPU of parsing HTML files, for `bench/before.py`. Runs on any checkout of Shoal.

    python parse_pages.py FOLDER PAGES

Prints the microseconds per page, of pages that are evenly spread over the folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from shoal.parse.html import parse


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    paths = sorted(folder.rglob("*.html"))
    bodies = [path.read_bytes() for path in paths[:: max(1, len(paths) // count)]]
    # The first pages pay for what is loaded and compiled once.
    for body in bodies[:20]:
        parse(body, url="http://docs.example/a/b.html", content_type="text/html")
    began = time.process_time()
    for body in bodies:
        parse(body, url="http://docs.example/a/b.html", content_type="text/html")
    print((time.process_time() - began) / len(bodies) * 1e6)


if __name__ == "__main__":
    main()
