"""Options that the spiders of [spiders] set for their crawls, for processes that submit crawls but run none.

Loading a spider runs its file. A spider that cannot be loaded here, e.g. because its packages are on the workers only,
has no options here, and that is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import InvalidInput
from shoal.operations.events import Emit
from shoal.operations.submit import spider_settings
from shoal.spider import load

# Fields of a crawl request, by the name of the spider.
SpiderOptions = Mapping[str, Mapping[str, Any]]


def load_spider_options(references: Mapping[str, str], *, emit: Emit) -> SpiderOptions:
    """The `settings` of each spider of [spiders], in the form of a crawl request."""
    options: dict[str, Mapping[str, Any]] = {}
    for name, reference in references.items():
        try:
            spider = load(reference)
            spider_settings(spider)
        except InvalidInput as error:
            emit(
                f"Crawls of the spider {name} are submitted without its own settings: {error}",
                event="spider.unavailable", spider=name,
            )  # fmt: skip
        else:
            options[name] = dict(spider.settings)
    return options
