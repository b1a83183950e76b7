"""The whole state of a frontier at one moment, read directly from the store, and its invariants."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from shoal.model.page_history import HISTORY_BYTES
from tests.servers import Server

# One call, so that nothing happens in between. KEYS is for tests only.
READ = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key)['ok']
  local value
  if kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  else value = redis.call('GET', key) end
  out[#out + 1] = key
  out[#out + 1] = value
end
return out
"""


class Shard:
    """One shard's keys, by family."""

    def __init__(self) -> None:
        self.ready: dict[str, dict[str, float]] = {}
        self.waiting: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.turns: dict[str, set[str]] = {}
        self.hosts: dict[str, dict[str, str]] = {}
        self.leases: dict[str, dict[str, bytes]] = {}
        self.deadlines: dict[str, float] = {}
        self.later: dict[str, float] = {}
        self.crawls: dict[str, dict[str, str]] = {}
        self.parked: dict[str, set[str]] = {}
        self.unparking: set[str] = set()
        self.pages: dict[str, dict[str, str]] = {}
        self.meta: dict[str, str] = {}
        self.due: dict[str, list[bytes]] = {}
        self.calendar: dict[str, float] = {}
        self.rates: dict[str, dict[str, str]] = {}
        self.names: dict[str, dict[str, str]] = {}
        self.failed: dict[str, list[bytes]] = defaultdict(list)

    def number(self, key: str, field: str) -> int:
        return int(float(self.crawls[key].get(field, 0)))

    def ended(self, key: str) -> bool:
        return self.crawls[key]["st"] in "sef"


def _pairs(flat: list[bytes]) -> dict[str, str]:
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _scores(flat: list[bytes]) -> dict[str, float]:
    return {flat[i].decode("latin-1"): float(flat[i + 1]) for i in range(0, len(flat), 2)}


def read(server: Server, namespace: str) -> dict[str, Shard]:
    flat = server.ask("EVAL", READ, 0, f"{namespace}{{*")
    shards: dict[str, Shard] = defaultdict(Shard)
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        prefix, _, name = key.decode().partition("}")
        if not prefix.endswith("{store"):
            _file(shards[prefix], name, value)
    return dict(shards)


def _file(shard: Shard, name: str, value: Any) -> None:
    family, _, rest = name.partition(":")
    match family:
        case "ready":
            shard.ready[rest] = _scores(value)
        case "q":
            crawl, _, host = rest.split(":", 2)
            shard.waiting[crawl, host] += value
        case "w":
            shard.turns[rest] = set(_scores(value))
        case "h":
            shard.hosts[rest] = _pairs(value)
        case "l":
            shard.leases[rest] = {value[i].decode(): value[i + 1] for i in range(0, len(value), 2)}
        case "leases":
            shard.deadlines = _scores(value)
        case "later":
            shard.later = _scores(value)
        case "c":
            shard.crawls[rest] = _pairs(value)
        case "parked":
            shard.parked[rest] = {member.decode() for member in value}
        case "unparking":
            shard.unparking = {member.decode() for member in value}
        case "hp":
            shard.pages[rest] = _pairs(value)
        case "meta":
            shard.meta = _pairs(value)
        case "due":
            shard.due[rest] = value
        case "calendar":
            shard.calendar = _scores(value)
        case "rates":
            shard.rates[rest] = _pairs(value)
        case "names":
            shard.names[rest] = _pairs(value)
        case "failed":
            shard.failed[rest] += [packed.partition(b"\n")[2] for packed in value]
        case "fq":
            shard.failed[rest.partition(":")[0]] += value


def visits_of(lease: dict[str, bytes]) -> list[bytes]:
    return [value for field, value in lease.items() if field.isdigit()]


def check(shards: dict[str, Shard]) -> None:
    for prefix, shard in shards.items():
        check_counts(prefix, shard)
        check_one_place(prefix, shard)
        check_nothing_stranded(prefix, shard)
        check_calendar(prefix, shard)


def check_calendar(prefix: str, shard: Shard) -> None:
    """I3 of perpetual crawls: every bucket is in the calendar, the copy counts its pages, the host their classes."""
    for bucket, members in shard.due.items():
        assert members, f"I3: bucket {bucket} of {prefix} is empty"
        assert bucket in shard.calendar, f"I3: bucket {bucket} of {prefix} is not in the calendar"
    for key in shard.crawls:
        mine = {bucket: members for bucket, members in shard.due.items() if bucket.partition(":")[0] == key}
        if shard.ended(key):
            assert not shard.rates.get(key), f"I3: an ended crawl has rates in {prefix}"
            continue
        scheduled = sum(map(len, mine.values()))
        assert scheduled == shard.number(key, "sc"), f"I3: {scheduled} pages are scheduled, {shard.crawls[key]}"
        classes: Counter[str] = Counter()
        for entry in _entries_of(shard, key, [member for members in mine.values() for member in members]):
            if entry[0] & 128:
                classes[str(entry[4 if entry[0] & 4 else 1] // 4)] += 1
        counted: Counter[str] = Counter()
        for value in shard.rates.get(key, {}).values():
            for part in value.split()[2:]:
                number, _, pages = part.partition(":")
                counted[number] += int(pages)
        assert classes == counted, f"I3: pages by class are {classes}, the hosts of {prefix} have {counted}"


def _entries_of(shard: Shard, key: str, due: list[bytes]) -> Iterator[bytes]:
    """All entries of a crawl, wherever they are."""
    for member in due:
        yield member.partition(b" ")[2].lstrip(b"-0123456789")
    for (crawl, _), entries in shard.waiting.items():
        if crawl == key:
            yield from entries
    for lease in shard.leases.values():
        for packed in visits_of(lease):
            owner, _, entry = packed.split(b":", 2)
            if owner == key.encode():
                yield entry
    for name in shard.later:
        member = name.encode("latin-1")
        if member.startswith(key.encode() + b":"):
            yield member.partition(b" ")[2]
    yield from shard.failed[key]


def check_counts(prefix: str, shard: Shard) -> None:
    """I3: admitted = waiting + leased + later + ended, and the counts are those of the keys themselves."""
    assert set(shard.leases) == set(shard.deadlines), "a lease without a deadline, or the reverse"
    for key in shard.crawls:
        a, w, le, t, s, f, x = (shard.number(key, field) for field in "awltsfx")
        where = f"crawl {key} in {prefix}: {shard.crawls[key]}"
        assert min(a, w, le, t, s, f, x) >= 0, f"I3: a negative count, {where}"
        assert a == w + le + t + s + f + x, f"I3: admitted is not the sum, {where}"
        leased = sum(
            packed.startswith(key.encode() + b":") for lease in shard.leases.values() for packed in visits_of(lease)
        )
        assert leased == le, f"I3: {leased} visits are leased, {where}"
        if shard.ended(key):
            assert w == t == 0, f"I3: an ended crawl waits, {where}"
        else:
            waiting = sum(len(entries) for (crawl, _), entries in shard.waiting.items() if crawl == key)
            later = sum(member.startswith(key + ":") for member in shard.later)
            assert waiting == w, f"I3: {waiting} visits wait, {where}"
            assert later == t, f"I3: {later} visits are due later, {where}"


def _rest(entry: bytes) -> bytes:
    """An entry without what changes when it is tried again."""
    flags = entry[0]
    rest = entry[4:] if flags & 4 else entry[1:]
    return bytes((flags & ~132,)) + (rest[HISTORY_BYTES:] if flags & 128 else rest)


def check_one_place(prefix: str, shard: Shard) -> None:
    """I3: a visit is in exactly one place."""
    places: Counter[tuple[str, str, bytes]] = Counter()
    for (crawl, host), entries in shard.waiting.items():
        if crawl in shard.crawls and not shard.ended(crawl):
            places.update((crawl, host, _rest(entry)) for entry in entries)
    for lease in shard.leases.values():
        for packed in visits_of(lease):
            key, _, entry = packed.split(b":", 2)
            places[key.decode(), lease["host"].decode(), _rest(entry)] += 1
    for member in shard.later:
        head, _, entry = member.encode("latin-1").partition(b" ")
        crawl, _, host = head.decode().split(":", 2)
        if crawl in shard.crawls and not shard.ended(crawl):
            places[crawl, host, _rest(entry)] += 1
    for bucket, members in shard.due.items():
        crawl = bucket.partition(":")[0]
        if crawl in shard.crawls and not shard.ended(crawl):
            for raw in members:
                name, _, entry = raw.partition(b" ")
                host = shard.names[crawl][name.decode()[1:]] if name.startswith(b"#") else name.decode()
                places[crawl, host, _rest(entry.lstrip(b"-0123456789"))] += 1
    twice = [place for place, count in places.items() if count > 1]
    assert not twice, f"I3: in two places at once in {prefix}: {twice}"


def check_nothing_stranded(prefix: str, shard: Shard) -> None:
    """L2: a host with visits that may be made and a free place is in `ready`."""
    for (key, host), entries in shard.waiting.items():
        if not entries or key not in shard.crawls or shard.ended(key):
            continue
        crawl = shard.crawls[key]
        where = f"{len(entries)} visits of {host} in {prefix}, crawl {key} {crawl}"
        if key not in shard.turns.get(host, ()):
            parked = host in shard.parked.get(key, ())
            flying = int(shard.pages.get(key, {}).get("!" + host, 0)) > 0
            assert parked or flying, f"L2: {where}: neither in turn nor parked"
            if parked and not flying and crawl["st"] == "r" and not crawl.get("dry"):
                assert key in shard.unparking, f"L2: {where}: parked forever"
            continue
        state = shard.hosts.get(host, {})
        held = sum(field == "k" or (field[0] == "k" and field[1:].isdigit()) for field in state)
        if held == 0:
            lanes = [lane for lane, hosts in shard.ready.items() if host in hosts]
            assert any(lane.partition(":")[2] == crawl.get("sp", "") for lane in lanes), (
                f"L2: {where}: not ready, {state}"
            )
        for field, token in state.items():
            if field == "k" or (field[0] == "k" and field[1:].isdigit()):
                assert token in shard.leases, f"L2: {where}: held by {token}, which is not a lease"


def gates(shards: dict[str, Shard]) -> dict[str, int]:
    """The gate of every place of every host, and its back-off."""
    return {
        f"{host}/{field}": int(float(value))
        for shard in shards.values()
        for host, state in shard.hosts.items()
        for field, value in state.items()
        if field == "b" or (field[0] == "g" and field[1:] in ("", "2", "3"))
    }
