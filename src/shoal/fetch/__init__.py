"""One request, one whole answer or one named fault: HTTP through libcurl, with a guard on every address it dials."""

from shoal.fetch.address_guard import AddressGuard
from shoal.fetch.dns import Resolver
from shoal.fetch.fetcher import Fetcher, MustWait, Request

__all__ = ["AddressGuard", "Fetcher", "MustWait", "Request", "Resolver"]
