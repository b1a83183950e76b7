"""A callback that does not let the reactor run."""

import time

from tests.scrapy.spiders.tree import Tree


class Blocking(Tree):
    name = "blocking"

    def parse(self, response):
        time.sleep(2.5 if response.url.endswith(("/1", "/2")) else 0)
        yield from super().parse(response)


del Tree
