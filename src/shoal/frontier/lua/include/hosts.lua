-- hosts: when a host may be requested next, and by how many workers at once.
-- Fields of `h:<host>`, all optional: per slot i (1 has no suffix) k token of its holder, t last finish ms,
-- g gate ms; d delay and n slots set by an operator, cd robots crawl delay, rk 1 = robots.txt is known, ad delay
-- from response times, m mean response ms, b back-off until ms, br the last failure, ba 1 = the server requested it,
-- f failures in a row, x why blocked, mx highest slot used, e epoch of the last lease, ts last successful finish,
-- rv version of its robots.txt copies, ex 1 = it is about to be forgotten.
local MOST_SLOTS = 32
-- A call considers this many crawls of a host, in the order of their turns.
local MOST_CRAWLS = 1000
local states = {}

local function state(host)
  local h = states[host]
  if not h then
    h = {}
    local flat = call('HGETALL', P .. 'h:' .. host)
    for i = 1, #flat, 2 do h[flat[i]] = flat[i + 1] end
    for _, f in ipairs({'d', 'n', 'cd', 'ad', 'm', 'b', 'f', 'mx'}) do h[f] = tonumber(h[f]) end
    states[host] = h
  end
  return h
end

-- The robots version of a host; 0 if it has none yet, or if the stored value is not a version.
local function robotsVersion(h)
  local version = tonumber(string.match(h.rv or '', '^%d+$')) or 0
  return version < BIG and version or 0
end

local function suffix(i) return i == 1 and '' or tostring(i) end

local function class(rank)
  if rank > 0 then return 0 elseif rank == 0 then return 1 end
  return 2
end

-- The crawls that wait on a host, and what applies to all of them: the largest delay, the smallest number of slots.
-- Crawls that cannot run are removed from the host, at most 100 per call: lists of ended crawls are unlinked, paused
-- crawls and crawls without page budget are parked.
local removalsLeft = 100

local function view(host)
  local h = state(host)
  local v = {host = host, h = h, crawls = {}, lanes = {}}
  local delay, slots = 0, nil
  local w = P .. 'w:' .. host
  local members = call('ZRANGE', w, 0, MOST_CRAWLS - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local key = members[i]
    local c = crawl(key)
    if c and c.st == 'r' and not c.dry then
      local best, only = top(key, c, host)
      v.crawls[#v.crawls + 1] = {key = key, copy = c, pass = tonumber(members[i + 1]), best = best, only = only and best}
      local rank = class(c.pr + tonumber(best))
      v.lanes[c.sp] = math.min(v.lanes[c.sp] or 2, rank)
      delay = math.max(delay, c.d)
      slots = math.min(slots or c.n, c.n)
    elseif removalsLeft == 0 then
      v.lanes[c and c.sp or ''] = v.lanes[c and c.sp or ''] or 2
    else
      removalsLeft = removalsLeft - 1
      if not c or (ended(c) and not c.kp) then
        unlist(key, c, host)
      else
        call('ZREM', w, key)
        call('SADD', P .. 'parked:' .. key, host)
      end
    end
  end
  v.delay = math.max(h.d or delay, h.cd or 0, h.ad or 0)
  v.slots = math.min(h.n or slots or 1, MOST_SLOTS)
  if not h.rk or (h.cd or 0) > 0 then v.slots = 1 end
  return v
end

-- The free slot that may be used first: its number and its gate. Nil if all slots are taken.
local function freeSlot(v)
  local h = v.h
  local taken, closed, best, gate = 0, 0, nil, nil
  for i = 1, math.max(h.mx or 1, v.slots) do
    local s = suffix(i)
    if h['k' .. s] then
      taken = taken + 1
    else
      local g = math.max(tonumber(h['g' .. s]) or 0, h.b or 0)
      local t = tonumber(h['t' .. s])
      if t and v.delay > 0 then g = math.max(g, t + v.delay) end
      -- A slot above the current number of slots may still cool down: the other slots wait until then.
      if i > v.slots then
        closed = math.max(closed, g)
      elseif not best or g < gate then
        best, gate = i, g
      end
    end
  end
  if taken >= v.slots or not best then return nil end
  return best, math.max(gate, closed)
end

-- Remove a host from `ready`. A host with one crawl is only in the lane in which it was found.
local function disarm(v, lane)
  call('ZREM', lane, v.host)
  if #v.crawls <= 1 then return end
  for sp in pairs(v.lanes) do
    for rank = 0, 2 do call('ZREM', P .. 'ready:' .. rank .. ':' .. sp, v.host) end
  end
end

-- Turn every list of a host into a list of failed visits, at constant cost. They can be retried.
-- `fi:<crawl>` number -> '<priority>:<host> <reason>', `fq:<crawl>:<number>` the list. `spare`: revisits of perpetual
-- crawls do not fail: they keep waiting.
local function failWaiting(v, why, spare)
  for _, hostCrawl in ipairs(v.crawls) do
    local key, c = hostCrawl.key, hostCrawl.copy
    local spared = false
    for _, l in ipairs(lists(key, c, v.host)) do
      local length = call('LLEN', l[2])
      if length > 0 and spare and c.ev > 0 and tonumber(l[1]) < -500000000000 then
        spared = true
      elseif length > 0 then
        local number = call('HINCRBY', P .. 'fi:' .. key, 'n', 1)
        call('RENAME', l[2], P .. 'fq:' .. key .. ':' .. number)
        call('HSET', P .. 'fi:' .. key, number, l[1] .. ':' .. v.host .. ' ' .. why)
        bump(key, 'w', -length)
        bump(key, 'f', length)
        reason(key, 'failed:' .. why, length)
        call('ZREM', P .. 'p:' .. key .. ':' .. v.host, l[1])
      end
    end
    if not spared then unlist(key, c, v.host) end
  end
end

-- Forget a host without waiting visits and without leases a day after its gate, unless an operator has set something
-- for it: a crawl of many millions of hosts would otherwise keep them all.
local function fade(host, h)
  if h.ex or h.x or h.d or h.n or not next(h) then return end
  local gate = h.b or 0
  for i = 1, h.mx or 1 do
    if h['k' .. suffix(i)] then return end
    gate = math.max(gate, tonumber(h['g' .. suffix(i)]) or 0)
  end
  h.ex = '1'
  call('HSET', P .. 'h:' .. host, 'ex', 1)
  call('PEXPIRE', P .. 'h:' .. host, math.max(0, gate - NOW) + 86400000)
end

-- Update `ready` for a host: it is in one class for each spider with waiting visits, or in none. An idle host is armed
-- at its gate, never simply at now. `fresh`: the host was in no class before; 'freed': one of its slots was taken until
-- now, and a host whose only slot is taken is in no class. `least`: the earliest time. Returns true if the host will be
-- ready at some time.
local function arm(host, fresh, least)
  local v = view(host)
  if not next(v.lanes) then
    fade(host, v.h)
    return false
  end
  if v.h.x then
    failWaiting(v, v.h.x)
    return false
  end
  local slot, gate = freeSlot(v)
  if not slot then return false end
  gate = math.max(gate, least or 0)
  if fresh == 'freed' then fresh = v.slots == 1 and (v.h.mx or 1) == 1 and not v.h.n end
  for sp, rank in pairs(v.lanes) do
    if not fresh then
      for other = 0, 2 do
        if other ~= rank then call('ZREM', P .. 'ready:' .. other .. ':' .. sp, host) end
      end
    end
    call('ZADD', P .. 'ready:' .. rank .. ':' .. sp, gate, host)
  end
  return true
end

local function keep(host, ...)
  local h = state(host)
  if h.ex then
    call('PERSIST', P .. 'h:' .. host)
    call('HDEL', P .. 'h:' .. host, 'ex')
    h.ex = nil
  end
  local args = {...}
  for i = 1, #args, 2 do h[args[i]] = args[i + 1] end
  call('HSET', P .. 'h:' .. host, ...)
end

-- Free a slot. `finish`: the time at which its last request finished, or nil if no request was made. The gate only
-- moves later. `fields`: further fields of the host, which are written with it.
local function freeHost(host, slot, finish, delay, fields)
  local h = state(host)
  local s = suffix(slot)
  fields = fields or {}
  h['k' .. s] = nil
  call('HDEL', P .. 'h:' .. host, 'k' .. s)
  if finish then
    finish = finish + TICK
    local n = #fields
    fields[n + 1], fields[n + 2] = 't' .. s, finish
    fields[n + 3], fields[n + 4] = 'g' .. s, math.max(tonumber(h['g' .. s]) or 0, delay > 0 and finish + delay or 0)
  end
  if #fields > 0 then keep(host, unpack(fields)) end
end
