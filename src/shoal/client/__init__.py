"""A client of Shoal's HTTP API: `Client` is synchronous, `AsyncClient` is for asyncio.

It needs HTTP only, no store and no worker. Responses are the API's JSON objects as dicts. An error of the API is raised
as the exception class of shoal.errors that it names, so that code for a store and code for the API handle it alike.

    client = shoal.Client("http://127.0.0.1:8080", token="shoal_...")
    crawl = client.submit(seeds=["https://example.org/"], outputs=["warehouse"])["id"]
    client.wait(crawl)
    for record in client.records(crawl): ...
"""

from shoal.client.async_client import AsyncClient
from shoal.client.client import Client
from shoal.client.connection import is_api

__all__ = ["AsyncClient", "Client", "is_api"]
