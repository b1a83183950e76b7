"""`shoal listen`: crawl requests from a Redis list, a Kafka topic or an AMQP queue, until a signal."""

from __future__ import annotations

import click

from shoal.cli.log import on_service_log
from shoal.cli.options import on_store, settings_of, store_flags


@click.command("listen", short_help="Take crawl requests from Redis, Kafka or AMQP.")
@click.argument("source", metavar="SOURCE")
@on_store
@on_service_log
def command(source: str, store: str | None, folder: str | None) -> int:
    """Take crawl requests from SOURCE and hand them to the workers of a store.

    SOURCE is redis://HOST:6379/0/NAME (a list; with ?group=GROUP a stream), kafka://BROKER:9092/TOPIC?group=GROUP or
    amqp://HOST/QUEUE. A request is JSON: {"seeds": ["https://example.org/"], "name": "mine"}, or one of Scrapy
    Cluster's. What names no output goes to the one called `default` in [outputs] of shoal.toml. What cannot be used
    goes to NAME-dead with the reason (?dead=), answers go to NAME-replies (?reply=).
    Ctrl-C or SIGTERM ends it after the requests in hand; nothing is lost either way.
    """
    from shoal.cli.listening import run

    return run(settings_of(store_flags(store, folder)), source)
