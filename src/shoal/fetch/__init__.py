"""One request, one whole answer or one named fault: HTTP through libcurl, with a guard on every address it dials."""

from shoal.fetch.curl import Fetcher, Request
from shoal.fetch.guard import Guard
from shoal.fetch.names import Resolver

__all__ = ["Fetcher", "Guard", "Request", "Resolver"]
