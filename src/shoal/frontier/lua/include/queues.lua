-- queues: where visits wait. For each crawl and host, there is one list per priority in use; `p:<crawl>:<host>` lists the
-- priorities once one other than 0 was used; `w:<host>` lists the crawls with visits there, scored by their turn.
-- An entry is a flag byte (bits 0-1 scheme, 2 attempts follow, 3 extension, 4-6 how found, 7 a history follows), then, if
-- bit 2 is set, three bytes (retries, expiries, blames), then a part that only Python reads (visit_codec.py).
local RETRY, EXPIRY, BLAME = 1, 2, 3
local MOST_PRIORITIES = 64

local function queue(key, prio, host)
  return P .. 'q:' .. key .. ':' .. prio .. ':' .. host
end

-- Count one more retry, expiry or blame in an entry. Returns the new entry and the new count.
local function mark(entry, which)
  local flags = string.byte(entry, 1)
  local tries, rest
  if bit.band(flags, 4) ~= 0 then
    local r, e, b = string.byte(entry, 2, 4)
    tries = {r or 0, e or 0, b or 0}
    rest = string.sub(entry, 5)
  else
    tries = {0, 0, 0}
    flags = flags + 4
    rest = string.sub(entry, 2)
  end
  tries[which] = math.min(tries[which] + 1, 255)
  return string.char(flags, tries[1], tries[2], tries[3]) .. rest, tries[which]
end

-- Whether a visit with these flags is a revisit: it was found as `revisit`, or it has a history (calendar.lua).
local function isRevisit(flags)
  return flags >= 128 or bit.band(flags, 112) == 64
end

-- The highest priority of a crawl on a host, and whether it is the only one.
local function top(key, c, host)
  if c.up then
    local best = call('ZREVRANGE', P .. 'p:' .. key .. ':' .. host, 0, 1)
    if best[1] then return best[1], not best[2] end
  end
  return '0', true
end

-- The priority that a visit gets, and whether it is new there: from the 65th different priority of a crawl on a host
-- on, visits get the next lower one.
local function openPriority(key, c, host, prio)
  if prio == '0' and not c.up then return prio, false end
  local p = P .. 'p:' .. key .. ':' .. host
  if not c.up then put(key, 'up', 1) end
  if call('ZSCORE', p, prio) then return prio, false end
  local present = call('ZCARD', p)
  if present == 0 then
    if prio == '0' then return prio, false end
    if call('EXISTS', queue(key, '0', host)) == 1 then call('ZADD', p, 0, '0') end
  elseif present >= MOST_PRIORITIES then
    local near = call('ZREVRANGEBYSCORE', p, prio, '-inf', 'LIMIT', 0, 1)[1] or call('ZRANGE', p, 0, 0)[1]
    return near, false
  end
  call('ZADD', p, prio, prio)
  return prio, true
end

-- Add visits to their queue. `front`: they are taken next, because they were leased before.
-- Returns whether their priority is new there: the host's class may rise.
local function push(key, c, host, prio, entries, front)
  local rose
  prio, rose = openPriority(key, c, host, prio)
  local command = (front and c.ord == 'f') and 'LPUSH' or 'RPUSH'
  call(command, queue(key, prio, host), unpack(entries))
  return rose
end

-- Add a crawl to the crawls of a host, with the score of the crawl whose turn it is.
-- Returns whether the crawl is new there, and whether the host had no crawls.
local function enlist(key, host)
  local w = P .. 'w:' .. host
  local first = call('ZRANGE', w, 0, 0, 'WITHSCORES')
  return call('ZADD', w, 'NX', first[2] or 0, key) == 1, not first[1]
end

-- Every list of a crawl on a host, with its priority.
local function lists(key, c, host)
  local result = {}
  local prios = call('ZRANGE', P .. 'p:' .. key .. ':' .. host, 0, -1)
  if #prios == 0 then prios = {'0'} end
  for _, prio in ipairs(prios) do result[#result + 1] = {prio, queue(key, prio, host)} end
  return result
end

-- Unlink a crawl's lists on a host; returns how many visits they held.
local function unlist(key, c, host)
  local visits = 0
  for _, l in ipairs(lists(key, c, host)) do
    visits = visits + call('LLEN', l[2])
    call('UNLINK', l[2])
  end
  call('DEL', P .. 'p:' .. key .. ':' .. host)
  call('ZREM', P .. 'w:' .. host, key)
  return visits
end

-- Whether a crawl has no visits left on a host, after visits of this priority were taken.
local function spent(key, c, host, prio)
  if call('EXISTS', queue(key, prio, host)) == 1 then return false end
  if c.up then
    local p = P .. 'p:' .. key .. ':' .. host
    call('ZREM', p, prio)
    if call('EXISTS', p) == 1 then return false end
  end
  return true
end
