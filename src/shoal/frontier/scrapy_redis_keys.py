"""Keys of a Scrapy project in scrapy-redis' layout: start URLs, items, statistics, and the queue that an import reads.

The project chooses these names. They are outside Shoal's namespace, and no script of the frontier touches them. This
module owns every command on them; shoal.scrapy owns what the values mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from shoal.frontier.frontier import Frontier

# KEYS 1 the project's key, 2 the claim | ARGV 1 list, set or zset, 2 messages at most, 3 claimer, 4 claim length ms
# Reply: nothing, or the claim's id and its messages, which stay under the key. The id is empty while another process
# holds the claim.
_CLAIM = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local c = redis.call('HMGET', KEYS[2], 'id', 'by', 'until', 'n')
if c[1] then
  if c[2] ~= ARGV[3] and tonumber(c[3]) > now then return {''} end
  redis.call('HSET', KEYS[2], 'by', ARGV[3], 'until', now + ARGV[4])
  local again = {c[1]}
  for i = 1, tonumber(c[4]) do again[i + 1] = redis.call('HGET', KEYS[2], i) end
  return again
end
local m
if ARGV[1] == 'set' then m = redis.call('SRANDMEMBER', KEYS[1], ARGV[2])
elseif ARGV[1] == 'zset' then m = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[2] - 1)
else m = redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1) end
if #m == 0 then return {} end
local id = t[1] .. '.' .. t[2] .. '.' .. ARGV[3]
local args = {'id', id, 'by', ARGV[3], 'until', now + ARGV[4], 'n', #m}
local reply = {id}
for i, message in ipairs(m) do
  args[#args + 1] = i
  args[#args + 1] = message
  reply[i + 1] = message
end
redis.call('HSET', KEYS[2], unpack(args))
return reply
"""
# KEYS the same | ARGV 1 list, set or zset, 2 the claim's id
# Removes the claim and its messages, unless the claim has another id.
_REMOVE = """
if redis.call('HGET', KEYS[2], 'id') ~= ARGV[2] then return 0 end
local n = tonumber(redis.call('HGET', KEYS[2], 'n'))
for i = 1, n do
  local message = redis.call('HGET', KEYS[2], i)
  if ARGV[1] == 'set' then redis.call('SREM', KEYS[1], message)
  elseif ARGV[1] == 'zset' then redis.call('ZREM', KEYS[1], message)
  else redis.call('LREM', KEYS[1], 1, message) end
end
redis.call('DEL', KEYS[2])
return n
"""
# KEYS 1 the hash | ARGV 1 name, 2 number, 3 max or min. Sets the number unless a greater or a lesser one is there.
_COMPARE = """
local had, new = tonumber(redis.call('HGET', KEYS[1], ARGV[1])), tonumber(ARGV[2])
if had and ((ARGV[3] == 'max' and had >= new) or (ARGV[3] == 'min' and had <= new)) then return 0 end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
"""


class StartUrlBatch(NamedTuple):
    """Claimed messages. `id` is empty while another process holds the claim."""

    id: bytes
    messages: list[bytes]


class ScrapyRedisKeys:
    """Commands on a project's keys, in the store of a frontier."""

    def __init__(self, frontier: Frontier) -> None:
        self._command = frontier.shards.store.command
        self._claimer = frontier.worker

    async def type_of(self, key: str) -> str:
        """list, set, zset, ...; none where the key does not exist."""
        reply = await self._command("TYPE", key, key=key)
        return reply.decode() if isinstance(reply, bytes) else str(reply)

    # Start URLs

    async def claim(self, key: str, kind: str, count: int, claim_ms: int) -> StartUrlBatch | None:
        """Claim up to `count` messages for `claim_ms`, or take over an expired claim. None where there are none."""
        args = ("EVAL", _CLAIM, 2, key, _claim_key(key), kind, count, self._claimer, claim_ms)
        reply = await self._command(*args, key=key)
        return StartUrlBatch(reply[0], reply[1:]) if reply else None

    async def remove(self, key: str, kind: str, claim_id: bytes) -> None:
        """Remove the messages of a claim, and the claim."""
        await self._command("EVAL", _REMOVE, 2, key, _claim_key(key), kind, claim_id, key=key)

    # Items and statistics

    async def append_item(self, key: str, item: str | bytes) -> None:
        await self._command("RPUSH", key, item, key=key)

    async def set_stat(self, key: str, name: str, value: str) -> None:
        await self._command("HSET", key, name, value, key=key)

    async def add_to_stat(self, key: str, name: str, number: int | float) -> None:
        command = "HINCRBY" if type(number) is int else "HINCRBYFLOAT"
        await self._command(command, key, name, str(number), key=key)

    async def compare_stat(self, key: str, name: str, number: int | float, how: str) -> None:
        """Set a statistic unless a greater (`how` is max) or a lesser one (min) is there."""
        await self._command("EVAL", _COMPARE, 1, key, name, str(number), how, key=key)

    async def stats(self, key: str) -> dict[str, str]:
        """All statistics of a hash."""
        flat = await self._command("HGETALL", key, key=key)
        texts = [part.decode(errors="replace") for part in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def remove_stats(self, key: str) -> None:
        await self._command("DEL", key, key=key)

    # The queue and the duplicate filter of scrapy-redis

    async def members(self, key: str) -> AsyncIterator[bytes]:
        """Every member of a set; some may come twice."""
        cursor: Any = b"0"
        while True:
            cursor, members = await self._command("SSCAN", key, cursor, "COUNT", 1000, key=key)
            for member in members:
                yield member
            if cursor == b"0":
                return

    async def first_entries(self, key: str, kind: str, count: int) -> list[bytes]:
        """The first entries of a list or zset."""
        entries: list[bytes] = await self._command("ZRANGE" if kind == "zset" else "LRANGE", key, 0, count - 1, key=key)
        return entries

    async def remove_entry(self, key: str, kind: str, entry: bytes) -> None:
        args = ("ZREM", key, entry) if kind == "zset" else ("LREM", key, 1, entry)
        await self._command(*args, key=key)


def _claim_key(key: str) -> str:
    """Beside the project's key, on the same server of a cluster."""
    return f"{key}:shoal" if "{" in key else f"{{{key}}}:shoal"
