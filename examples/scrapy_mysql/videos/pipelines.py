"""Stores videos in MySQL or MariaDB, by their URL: an item that comes again after a crash replaces its row."""

import asyncio

import asyncmy
from scrapy import signals

_TABLE = """CREATE TABLE IF NOT EXISTS videos (
    url VARCHAR(700) CHARACTER SET ascii PRIMARY KEY, channel VARCHAR(100), title TEXT, thumbnails TEXT
) CHARACTER SET utf8mb4"""
_ROW = "REPLACE INTO videos (url, channel, title, thumbnails) VALUES (%s, %s, %s, %s)"


class MySql:
    def __init__(self, crawler):
        self._settings = crawler.settings
        self._pool = None
        self._opening = asyncio.Lock()
        crawler.signals.connect(self._close, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_item(self, item, spider=None):
        """Store the item before returning it: its page is acknowledged then, and is not requested again."""
        thumbnails = ",".join(file["path"] for file in item.files)
        await self._execute(_ROW, item.url, item.channel, item.title, thumbnails)
        return item

    async def _execute(self, statement, *values):
        pool = await self._open()
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(statement, values)

    async def _open(self):
        async with self._opening:
            if self._pool is None:
                settings = self._settings
                self._pool = await asyncmy.create_pool(
                    host=settings["MYSQL_HOST"],
                    port=settings.getint("MYSQL_PORT"),
                    user=settings["MYSQL_USER"],
                    password=settings["MYSQL_PASSWORD"],
                    db=settings["MYSQL_DATABASE"],
                    charset="utf8mb4",
                    autocommit=True,
                    minsize=1,
                    maxsize=4,
                )
                async with self._pool.acquire() as connection, connection.cursor() as cursor:
                    await cursor.execute(_TABLE)
            return self._pool

    async def _close(self):
        if self._pool is not None:
            self._pool.close()
            await self._pool.wait_closed()
