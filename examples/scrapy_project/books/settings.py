"""A Scrapy project on Shoal: the first setting is all it takes."""

SCHEDULER = "shoal.scrapy.Scheduler"

# The store. Without this line it is an embedded one in the folder .shoal, for the processes of this machine.
# REDIS_URL = "redis://store.example:6379"

BOT_NAME = "books"
SPIDER_MODULES = ["books.spiders"]
USER_AGENT = "books (+https://example.org/bot)"
ROBOTSTXT_OBEY = True

# For all processes on all machines together.
DOWNLOAD_DELAY = 0.2

ITEM_PIPELINES = {"books.pipelines.Shelf": 300}
