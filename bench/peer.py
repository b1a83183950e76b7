"""scrapy-redis' side: its own Scheduler, PriorityQueue and RFPDupeFilter with their defaults, request by request.

Its client is synchronous and has no acknowledgement: a request that `next_request` returned is lost when the process
dies. Large fills are made by a script that writes the same values as its classes; a few requests are compared
afterwards.
"""

from __future__ import annotations

from redis import Redis
from scrapy import Request, Spider
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import PriorityQueue
from scrapy_redis.scheduler import Scheduler

from bench.cost import Cost, metered
from bench.server import Server
from bench.workload import BATCH, host, url

_PART = 1000
_FILL = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local url = string.format('https://host%06d.example/articles/2026/page-%019d', n % tonumber(ARGV[3]), n)
  redis.call('SADD', KEYS[1], redis.sha1hex('{"body": "", "method": "GET", "url": "' .. url .. '"}'))
  if KEYS[2] then redis.call('ZADD', KEYS[2], 0, ARGV[4] .. url .. ARGV[5]) end
end
"""


class Peer:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.redis = Redis(unix_socket_path=server.socket)
        self.spider = Spider(name="bench")
        self.filter = RFPDupeFilter(self.redis, "bench:dupefilter")
        self.scheduler = Scheduler(self.redis, persist=True, dupefilter=self.filter)
        self.scheduler.open(self.spider)
        self.queue: PriorityQueue = self.scheduler.queue
        self.pages = 0
        self.redis.ping()

    def fill(self, count: int, hosts: int, *, queue: bool = True) -> None:
        """Fill queue and dupefilter, or only the dupefilter, as after every request was popped."""
        sample = url(0, host(0)).encode()
        # Encoded requests differ only in the URL, which always has the same length.
        before, after = self.queue._encode_request(Request(sample.decode())).split(sample)
        script = self.redis.register_script(_FILL)
        keys = [self.filter.key, self.queue.key] if queue else [self.filter.key]
        for start in range(self.pages, self.pages + count, _PART):
            script(keys, [start, min(start + _PART, self.pages + count) - 1, hosts, before, after])
        self.pages += count
        self._check_fill(count, hosts, queue)

    def cycle(self, batches: int, hosts: int) -> dict[str, Cost]:
        """Call enqueue_request and next_request equally often, alternating by batch; each kind is metered."""
        costs = {"add": Cost(), "lease": Cost()}
        self.server.settle()
        numbers = range(self.pages, self.pages + batches * BATCH)
        self.pages = numbers.stop
        requests = [Request(url(number, host(number % hosts))) for number in numbers]
        enqueue, following = self.scheduler.enqueue_request, self.scheduler.next_request
        for start in range(0, len(requests), BATCH * 8):
            part = requests[start : start + BATCH * 8]
            with metered(self.server, costs["add"]):
                for request in part:
                    if not enqueue(request):
                        raise RuntimeError("A new request was taken for a seen one: the measurement is void.")
            with metered(self.server, costs["lease"]):
                for _ in part:
                    if following() is None:
                        raise RuntimeError("The queue is empty too early: the measurement is void.")
        for cost in costs.values():
            cost.urls = len(requests)
        return costs

    def _check_fill(self, count: int, hosts: int, queue: bool) -> None:
        numbers = [self.pages - count, self.pages - 1 - count // 3, self.pages - 1]
        for request in (Request(url(number, host(number % hosts))) for number in numbers):
            there = self.filter.request_seen(request)
            if queue:
                encoded = self.queue._encode_request(request)
                there = there and self.redis.zscore(self.queue.key, encoded) is not None
            if not there:
                raise RuntimeError("The fill does not write what scrapy-redis writes: the measurement is void.")
        if int(self.redis.scard(self.filter.key)) != self.pages:
            raise RuntimeError("The fill has written too few requests: the measurement is void.")
