"""One request in, one complete response or one named fault out: HTTP through libcurl, with a check of every address."""

from shoal.fetch.address_guard import AddressGuard
from shoal.fetch.dns import Resolver
from shoal.fetch.fetcher import Fetcher, MustWait, Request

__all__ = ["AddressGuard", "Fetcher", "MustWait", "Request", "Resolver"]
