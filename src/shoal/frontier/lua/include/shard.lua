-- shard: the first part of every script.
-- Reads the shard's `meta` once: META.<field> is a field, and FIELDS are those that the script mentions (scripts.py).
-- Fields that few calls need are read by those calls. A shard without `meta` replies ABSENT and nothing is written: this
-- distinguishes a slot that is being moved, which looks like an empty shard, from a new one.
-- ARGV 1 is '<time ms>|<founding>|<epoch>|<time ms>', all optional: the time, '' = the server's clock plus the shard's
-- offset (see epoch.lua); the frontier that the caller has joined; the time it expects, and the epoch it was read in.
-- Fields of `meta` about the clock: offset, last = a time that was reached, since = the first epoch whose readings can
-- be compared with the clock, doubt = the first epoch whose readings predate a server process that could not be compared.

local call = redis.call
local P = string.sub(KEYS[1], 1, -5)
-- A slot that is moved key by key (SETSLOT, MIGRATE) is on two nodes until that is done. The node it leaves refuses
-- access to a key that is not there, which may be one that was moved: nothing is read or written until the slot is whole.
local probe = redis.pcall('EXISTS', P .. '-')
if type(probe) == 'table' then
  if string.find(probe.err, 'non local key', 1, true) then return {S.HELD, 250} end
  return probe
end
local META = call('HMGET', KEYS[1], FIELDS)
if not META.schema then return {S.ABSENT} end
if META.schema ~= SCHEMA then return {S.SCHEMA, META.schema} end

local time, founding, readIn, expected = string.match(ARGV[1] or 'none', '^(%d*)|?([%d.]*)|?(%d*)|?(%d*)$')
if not time then return {S.INVALID, 'now'} end
if founding ~= '' and founding ~= string.sub(META.seed or '', -6) .. '.' .. (META.shards or '') then return {S.REPLACED} end
local SINCE = tonumber(META.since) or 0

-- TICK: the time is up to this many ms later than NOW. A finish is rounded up, so that no gap is cut short.
local NOW, TICK = tonumber(time), 0
if not NOW then
  TICK = 1
  local t = call('TIME')
  NOW = t[1] * 1000 + math.floor(t[2] / 1000) + (tonumber(META.offset) or 0)
end
-- Nothing is written if the clock was set: gates and deadlines would be wrong.
if expected ~= '' then
  local read = tonumber(readIn) or 0
  if read >= SINCE then
    if math.abs(NOW - expected) > 1000 then return {S.CLOCK, NOW} end
  else
    local doubt = tonumber(call('HGET', KEYS[1], 'doubt'))
    if doubt and read >= doubt then return {S.CLOCK, NOW} end
  end
end

-- Arguments are read in order; a missing or malformed one is noted, and the script replies INVALID before it writes.
local at, wrong = 1, nil
local function text(limit, pattern)
  at = at + 1
  local v = ARGV[at]
  if not v or #v > (limit or 255) or (pattern and not string.find(v, pattern)) then
    wrong = wrong or ('argument ' .. at)
    return ''
  end
  return v
end
local function number(least, most)
  local v = tonumber(text(24, '^%-?%d+$'))
  if not v or (v == 0 and ARGV[at] ~= '0') or v < least or v > most then
    wrong = wrong or ('argument ' .. at)
    return least
  end
  return v
end
local function numberOr(none, least, most)
  if ARGV[at + 1] == '' then at = at + 1 return none end
  return number(least, most)
end
-- A token is '<server process, 16 digits>.<shard>-<counter>.<worker>'.
local function holder(token) return string.match(token, '^%x+%.%d+%-%d+%.(.*)$') end
local BIG = 9007199254740992
-- The largest entry of a visit. Python allows less by default (visit_codec.py).
local ENTRY = 16777216
local HOST = '^[^%s%z/?#@]+$'
local CRAWL = '^%w+$'
local PRIORITY = '^%-?%d+$'

-- Wake one sleeping worker, the last that fell asleep. If it finds more hosts than it can take, it wakes the next.
-- A cluster does not report whether a worker on another node received the message, so up to three are woken there.
local function wake()
  for _ = 1, 3 do
    local sleeper = call('ZPOPMAX', P .. 'idle')
    if not sleeper[1] then return end
    local channel = string.match(P, '^(.-){') .. ':wake:' .. sleeper[1]
    if tonumber(sleeper[2]) > NOW and call('PUBLISH', channel, call('HGET', KEYS[1], 'shard')) > 0 then return end
  end
end
