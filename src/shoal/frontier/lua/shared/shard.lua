-- shard: what every script begins with.
-- Reads the shard's `meta` once. A shard without it answers ABSENT and nothing is written: that is how a slot in
-- transit, which looks like an empty shard, is told from a new one.
-- ARGV 1 is the time in ms; '' = the server's clock plus the shard's offset (see epoch.lua).

local call = redis.call
local P = string.sub(KEYS[1], 1, -5)
local META = call('HMGET', KEYS[1], 'schema', 'shard', 'epoch', 'run', 'hold', 'unsafe', 'frozen', 'offset', 'blocked')
if not META[1] then return {S.ABSENT} end
if META[1] ~= SCHEMA then return {S.SCHEMA, META[1]} end

local NOW = tonumber(ARGV[1])
if not NOW then
  if ARGV[1] ~= '' then return {S.INVALID, 'now'} end
  local t = call('TIME')
  NOW = t[1] * 1000 + math.floor(t[2] / 1000) + (tonumber(META[8]) or 0)
end

-- Arguments are taken in order; a missing or malformed one is noted, and the script answers INVALID before it writes.
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
  if not v or v < least or v > most then
    wrong = wrong or ('argument ' .. at)
    return least
  end
  return v
end
local function numberOr(none, least, most)
  if ARGV[at + 1] == '' then at = at + 1 return none end
  return number(least, most)
end
local BIG = 9007199254740992
local HOST = '^[^%s%z/?#@]+$'
local CRAWL = '^%w+$'
local PRIORITY = '^%-?%d+$'

-- A worker that sleeps has set `idle`. It is woken once, then sets it again.
local function wake()
  if call('DEL', P .. 'idle') == 1 then
    call('PUBLISH', string.match(P, '^(.-){') .. ':wake', META[2])
  end
end
