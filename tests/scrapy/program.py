"""A project's own program: runs the spider `channel` in one process, several at once or one after the other.

Its one argument is JSON: settings, whether to run them at once, and the arguments of each run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from typing import Any

from scrapy.crawler import CrawlerRunner
from scrapy.utils.log import configure_logging
from scrapy.utils.reactor import install_reactor
from twisted.internet.defer import DeferredList, inlineCallbacks


def main() -> None:
    # Only here does a project that names nothing but SCHEDULER meet Shoal: while its first spider is being run.
    assert "shoal.scrapy" not in sys.modules
    from tests.scrapy.spiders.channel import Channel

    order = json.loads(sys.argv[1])
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor as installed

    reactor: Any = installed
    configure_logging()
    runner = CrawlerRunner(order["settings"])

    @inlineCallbacks
    def run() -> Generator[Any, Any, None]:
        if order["at_once"]:
            yield DeferredList([runner.crawl(Channel, **arguments) for arguments in order["runs"]])
        else:
            for arguments in order["runs"]:
                yield runner.crawl(Channel, **arguments)
        reactor.stop()

    reactor.callWhenRunning(run)
    reactor.run()


if __name__ == "__main__":
    main()
