"""Projects with their own rules for duplicate requests."""

import hashlib

import scrapy
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.request import fingerprint
from w3lib.url import url_query_cleaner

from shoal.scrapy import DupeFilter
from tests.scrapy.pipelines import ITEM_PIPELINE


class BySession:
    """A fingerprinter for which ?session= does not count, but a header does."""

    def fingerprint(self, request):
        url = url_query_cleaner(request.url, ["session"], remove=True)
        return hashlib.sha256(url.encode() + request.headers.get("X-Page", b"")).digest()


class Named(RFPDupeFilter):
    def request_fingerprint(self, request):
        return BySession().fingerprint(request).hex()


class NamedOurs(DupeFilter):
    def request_fingerprint(self, request):
        return BySession().fingerprint(request).hex()


class Nothing(BaseDupeFilter):
    """Filters nothing."""


class Judging(scrapy.Spider):
    name = "judging"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        for number, link in enumerate(("/a?session=1", "/a?session=2", "/b?x=1&y=2", "/b?y=2&x=1", "/b?y=2&x=1")):
            yield response.follow(link, callback=self.page, cb_kwargs={"number": number})
        yield response.follow("/a?session=3", callback=self.page, headers={"X-Page": "2"}, cb_kwargs={"number": 9})

    def page(self, response, number):
        yield {"key": str(number), "url": response.url, "mark": fingerprint(response.request).hex()}
