"""Stores items in SQLite by their key: an item that comes again, because a process died, is stored once."""

import sqlite3


class Shelf:
    def __init__(self, path):
        self.database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS pages (url TEXT PRIMARY KEY, title TEXT)")

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.get("SHELF", "books.db"))

    def process_item(self, item, spider=None):
        self.database.execute("INSERT OR REPLACE INTO pages VALUES (:url, :title)", item)
        return item

    def close_spider(self, spider=None):
        self.database.close()
