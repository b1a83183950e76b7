"""Sets its own download delay, as spiders did before there were settings for it."""

from tests.scrapy.spiders.tree import Tree


class Unhurried(Tree):
    name = "unhurried"
    download_delay = 0.3


del Tree
