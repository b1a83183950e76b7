-- hosts: when a host may be requested next, and by how many workers at once.
-- Fields of `h:<host>`, all optional: per slot i (1 has no suffix) k token of its holder, t last finish ms,
-- g gate ms; d delay and n slots set by an operator, cd robots crawl delay, rk 1 = robots.txt is known, ad delay
-- from response times, m mean response ms, b back-off until ms, br the last failure, ba 1 = the server requested it,
-- f failures in a row, x why blocked, mx highest slot used, e epoch of the last lease, ts last successful finish,
-- rv version of its robots.txt copies, ex 1 = it is about to be forgotten.
local MOST_SLOTS = 32
-- More crawls than this on one host see to it in turns.
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

-- 0 when it has none yet, or what is there is not a version.
local function robotsVersion(h)
  local version = tonumber(string.match(h.rv or '', '^%d+$')) or 0
  return version < BIG and version or 0
end

local function suffix(i) return i == 1 and '' or tostring(i) end

local function class(rank)
  if rank > 0 then return 0 elseif rank == 0 then return 1 end
  return 2
end

-- Who waits on the host, and what holds for all of them: the largest delay, the smallest number of slots.
-- What is met here and cannot run is moved out of the way, at most 100 a call: lists of ended crawls are unlinked,
-- paused crawls and crawls without page budget are parked.
local budget = 100

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
    elseif budget == 0 then
      v.lanes[c and c.sp or ''] = v.lanes[c and c.sp or ''] or 2
    else
      budget = budget - 1
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

-- The free slot that may be used first: its number and moment. Nil when all are taken.
local function freeSlot(v)
  local h = v.h
  local taken, closed, best, moment = 0, 0, nil, nil
  for i = 1, math.max(h.mx or 1, v.slots) do
    local s = suffix(i)
    if h['k' .. s] then
      taken = taken + 1
    else
      local g = math.max(tonumber(h['g' .. s]) or 0, h.b or 0)
      local t = tonumber(h['t' .. s])
      if t and v.delay > 0 then g = math.max(g, t + v.delay) end
      -- A slot that was closed still cools down: until then the others wait with it.
      if i > v.slots then
        closed = math.max(closed, g)
      elseif not best or g < moment then
        best, moment = i, g
      end
    end
  end
  if taken >= v.slots or not best then return nil end
  return best, math.max(moment, closed)
end

-- Take a host out of `ready`. With one crawl on it, it stands in the lane it was found in and no other.
local function disarm(v, lane)
  call('ZREM', lane, v.host)
  if #v.crawls <= 1 then return end
  for sp in pairs(v.lanes) do
    for rank = 0, 2 do call('ZREM', P .. 'ready:' .. rank .. ':' .. sp, v.host) end
  end
end

-- Every list of a host becomes a failed one, at constant cost, and can be retried.
-- `fi:<crawl>` number -> what it holds, `fq:<crawl>:<number>` the list. `spare`: revisits of perpetual crawls wait on.
local function setAside(v, why, spare)
  for _, one in ipairs(v.crawls) do
    local key, c = one.key, one.copy
    local spared = false
    for _, l in ipairs(lists(key, c, v.host)) do
      local held = call('LLEN', l[2])
      if held > 0 and spare and c.ev > 0 and tonumber(l[1]) < -500000000000 then
        spared = true
      elseif held > 0 then
        local number = call('HINCRBY', P .. 'fi:' .. key, 'n', 1)
        call('RENAME', l[2], P .. 'fq:' .. key .. ':' .. number)
        call('HSET', P .. 'fi:' .. key, number, l[1] .. ':' .. v.host .. ' ' .. why)
        bump(key, 'w', -held)
        bump(key, 'f', held)
        reason(key, 'failed:' .. why, held)
        call('ZREM', P .. 'p:' .. key .. ':' .. v.host, l[1])
      end
    end
    if not spared then unlist(key, c, v.host) end
  end
end

-- A host that nobody waits for and nobody holds is forgotten a day after its gate, unless an operator said something of
-- it: a crawl of many millions of hosts would otherwise keep them all.
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

-- Make `ready` say what is true of a host: in one class for each spider that waits, or in none. An idle host is armed
-- at its gate, never simply at now. `fresh`: it was in no class before; 'freed': one of its slots was taken until now,
-- and a host whose only slot is taken is in no class. `least`: not before this. True when it will be ready at some
-- moment.
local function arm(host, fresh, least)
  local v = view(host)
  if not next(v.lanes) then
    fade(host, v.h)
    return false
  end
  if v.h.x then
    setAside(v, v.h.x)
    return false
  end
  local slot, moment = freeSlot(v)
  if not slot then return false end
  moment = math.max(moment, least or 0)
  if fresh == 'freed' then fresh = v.slots == 1 and (v.h.mx or 1) == 1 and not v.h.n end
  for sp, rank in pairs(v.lanes) do
    if not fresh then
      for other = 0, 2 do
        if other ~= rank then call('ZREM', P .. 'ready:' .. other .. ':' .. sp, host) end
      end
    end
    call('ZADD', P .. 'ready:' .. rank .. ':' .. sp, moment, host)
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

-- Give a slot back. `finish` ms of its last request, or nil if none was made. The gate only moves later. What else is
-- known of the host (`fields`) is written with it.
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
