"""All videos of one channel: each channel is a crawl of its own, with its own progress.

scrapy crawl channel -a site=https://videos.example -a channel=7
"""

import scrapy

from ..items import Video


class Channel(scrapy.Spider):
    name = "channel"

    def __init__(self, site, channel, **arguments):
        super().__init__(**arguments)
        self.channel = channel
        self.start_urls = [f"{site}/channel/{channel}"]

    def parse(self, response):
        for link in response.css("a.video"):
            yield response.follow(link, callback=self.parse_video)
        yield from response.follow_all(css="a.next")

    def parse_video(self, response):
        yield Video(
            url=response.url,
            channel=self.channel,
            title=response.css("h1::text").get(""),
            file_urls=[response.urljoin(url) for url in response.css("img.thumbnail::attr(src)").getall()],
        )
