"""A Scrapy project for several containers: what differs between installations comes from the environment."""

import os

SCHEDULER = "shoal.scrapy.Scheduler"
# The store that all containers share. Without it, Shoal uses an embedded store in the folder .shoal, for one machine.
REDIS_URL = os.environ.get("REDIS_URL")

BOT_NAME = "videos"
SPIDER_MODULES = ["videos.spiders"]
USER_AGENT = "videos (+https://example.org/bot)"
ROBOTSTXT_OBEY = True

# For all containers together.
DOWNLOAD_DELAY = float(os.environ.get("DOWNLOAD_DELAY", "1"))

# Thumbnails, in a volume that all containers have.
FILES_STORE = os.environ.get("FILES_STORE", "files")
ITEM_PIPELINES = {"scrapy.pipelines.files.FilesPipeline": 100, "videos.pipelines.MySql": 300}

MYSQL_HOST = os.environ.get("MYSQL_HOST", "127.0.0.1")
MYSQL_PORT = int(os.environ.get("MYSQL_PORT", "3306"))
MYSQL_USER = os.environ.get("MYSQL_USER", "videos")
MYSQL_PASSWORD = os.environ.get("MYSQL_PASSWORD", "")
MYSQL_DATABASE = os.environ.get("MYSQL_DATABASE", "videos")
