"""A spider that uses what requests can carry: forms, cookies, items in meta, errbacks, retries."""

import dataclasses
import datetime

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Book(scrapy.Item):
    key = scrapy.Field()
    seen = scrapy.Field()


@dataclasses.dataclass
class Shelf:
    name: str
    since: datetime.date


class Shop(scrapy.Spider):
    name = "shop"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.url = start

    async def start(self):
        yield scrapy.FormRequest(
            f"{self.url}login", formdata={"user": "u", "password": "p"}, callback=self.inside, dont_filter=True
        )

    def inside(self, response):
        shelf = Shelf("poems", datetime.date(2026, 1, 2))
        for number in range(6):
            item = Book(key=f"book {number}", seen=[])
            yield response.follow(
                f"/book/{number}", callback=self.book, cb_kwargs={"item": item, "shelf": shelf, "pair": (1, 2)}
            )
        yield scrapy.http.JsonRequest(f"{self.url}api", data={"a": [1]}, callback=self.api, meta={"pages": {3, 4}})
        yield response.follow("/gone", callback=self.never, errback=self.gone, cb_kwargs={"what": "gone"})
        yield response.follow("/moved", callback=self.moved, meta={"tag": ("t", 1)})
        yield response.follow("/flaky", callback=self.flaky)
        yield response.follow("/lambda", callback=lambda response: None)
        yield response.follow("/object", meta={"deep": [{"it": object()}]})
        yield response.follow("/broken", callback=self.broken)

    def book(self, response, item, shelf, pair):
        item["seen"].append(
            [shelf.name, shelf.since.isoformat(), list(pair), type(pair).__name__, type(shelf).__name__]
        )
        yield item

    def api(self, response):
        pages = response.meta["pages"]
        yield {
            "key": "api",
            "body": response.request.body.decode(),
            "pages": sorted(pages),
            "type": type(pages).__name__,
        }

    def gone(self, failure):
        yield {"key": "gone", "status": failure.value.response.status, "what": failure.request.cb_kwargs["what"]}

    def moved(self, response):
        yield {"key": "moved", "url": response.url, "tag": type(response.meta["tag"]).__name__}

    def flaky(self, response):
        yield {"key": "flaky", "times": response.meta["retry_times"]}

    def never(self, response):
        yield {"key": "never"}

    def broken(self, response):
        yield {"key": "before it breaks"}
        raise KeyError("broken")
