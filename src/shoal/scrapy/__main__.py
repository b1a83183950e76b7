"""`python -m shoal.scrapy`: wait for submitted crawls of the spiders of this folder's Scrapy project."""

from __future__ import annotations

import sys

from scrapy.utils.project import get_project_settings

from shoal.errors import ShoalError


def main() -> int:
    if sys.argv[1:]:
        sys.stderr.write("Usage: python -m shoal.scrapy, in the folder of a Scrapy project. It takes no arguments.\n")
        return 2
    from shoal.scrapy.standby import serve

    try:
        return serve(get_project_settings())
    except ShoalError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
