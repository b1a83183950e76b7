-- acknowledge: report the outcome of visits. The last visit of a lease ends the lease and frees its slot.
-- ARGV    1 now | 2 worker | 3 request | 4 entries for the journal, and for each: server process, shards, links
--         then per lease: token, host, ms since its last request finished ('' = none was made), success of that
--         request (1, 0, ''), its response ms or '', the host's delay in ms by response time or '', visits,
--         and for each visit: number, outcome (s stored, f failed, x excluded, r retry), reason, ms (r: until the retry;
--         s: until a revisit, 0 = never), history: with it, s puts the page of a perpetual crawl into the calendar
-- Reply   OK, now, tokens of lost leases
-- Keeps   each visit of a token is acknowledged once; a lost token changes nothing, but may move its host's gate later
--         the same worker and request again get the same reply
-- Frees memory first, so that it runs when the store is full
-- Cost    O(visits + leases log leases)
--include shard open crawls queues hosts calendar signals take visits

local worker = text(64, '^[%w_.@-]+$')
local request = text(32, '^%w+$')
local links = {}
for i = 1, number(0, 10000) do links[i] = {text(16, '^%x+$'), text(16384, '^[%d,]+$'), text(2 * ENTRY)} end
local blocks = {}
while not wrong and at < #ARGV do
  local b = {token = text(128, '^%x+%.%d+%-%d+%.[%w_.@-]+$'), host = text(260, HOST), ago = numberOr(nil, 0, BIG), success = text(1, '^[01]?$'),
    response = numberOr(nil, 0, BIG), delay = numberOr(nil, 0, 86400000), n = number(0, 1000), visits = {}}
  for i = 1, wrong and 0 or b.n do
    b.visits[i] = {n = text(12, '^%d+$'), outcome = text(1, '^[sfxr]$'), why = text(64, '^[^%c]*$'), ms = number(0, BIG), history = text(HISTORY)}
    if b.visits[i].history ~= '' and #b.visits[i].history ~= HISTORY then wrong = wrong or ('argument ' .. at) end
  end
  blocks[#blocks + 1] = b
  callHosts[#callHosts + 1] = b.host
end
if wrong then return {S.INVALID, wrong} end

--include server run journal
call('DEL', P .. '-')
local reply = {S.OK, NOW}
local last = call('HGET', P .. 'acks', worker)
if last and string.match(last, '^%w+') == request then
  for token in string.gmatch(string.sub(last, #request + 1), '%S+') do reply[#reply + 1] = token end
  return reply
end
for _, entry in ipairs(links) do journal(entry[1], entry[2], entry[3], request) end

local due, armed = false, false
-- Returns false if the same visit is due later already: a URL whose admission was forced twice is retried once.
local function later(key, prio, host, entry, ms)
  if call('ZADD', P .. 'later', 'NX', NOW + ms,
    key .. ':' .. prio .. ':' .. host .. ' ' .. entry) == 0 then return false end
  bump(key, 't', 1)
  due = true
  return true
end

-- Values of the previous visit: most visits of a lease are of one crawl and one priority.
local prefix, key, prio, from = nil, nil, nil, 1
local function conclude(host, visit, packed, start)
  if string.sub(packed, 1, from - 1) ~= prefix then
    key, prio, from = string.match(packed, '^(%w+):(%-?%d+):()')
    prefix = string.sub(packed, 1, from - 1)
  end
  local c = crawl(key)
  if not c then return end
  bump(key, 'l', -1)
  if c.mp or c.ph > 0 then unreserve(key, c, host, visit.outcome == 's') end
  if visit.outcome == 's' and visit.history ~= '' and c.ev > 0 and not ended(c) then
    bump(key, 's', 1)
    local ms = visit.ms
    if c.tn + c.pn > 0 and settle(key, c, host, string.sub(packed, from), visit.history, start) then ms = 0 end
    -- replan counts the page by its new history.
    local flags = replan(key, host, prio, packed, from, visit.history, NOW + ms)
    if flags >= 128 or isRevisit(flags) then bump(key, 'rs', 1) end
    due = due or ms < 10000
    return
  end
  local entry = string.sub(packed, from)
  if visit.outcome ~= 'r' and isRevisit(string.byte(entry, 1)) then bump(key, 'rs', 1) end
  if visit.outcome == 's' then
    bump(key, 's', 1)
    if visit.ms > 0 and not ended(c) and later(key, prio, host, entry, visit.ms) then
      bump(key, 'a', 1)
    else
      uncount(key, host, entry)
    end
  elseif visit.outcome == 'f' then
    fail(key, host, prio, entry, visit.why)
  elseif visit.outcome == 'x' then
    bump(key, 'x', 1)
    reason(key, 'excluded:' .. visit.why, 1)
    if c.tn + c.pn > 0 then settle(key, c, host, entry, '', start) end
    uncount(key, host, entry)
    if visit.why == 'bytes per host' then setAsideVisit(key, host, prio, entry, visit.why) end
  elseif ended(c) then
    dropVisit(key, c, host, prio, (mark(entry, RETRY)))
  elseif not later(key, prio, host, (mark(entry, RETRY)), visit.ms) then
    bump(key, 'x', 1)
    reason(key, 'excluded:duplicate', 1)
  end
end

local lost = {}
for _, b in ipairs(blocks) do
  local lease = not stale(b.token) and readLease(b.token)
  local finish = b.ago and math.max(0, NOW - b.ago)
  if not lease or lease.host ~= b.host then
    lost[#lost + 1] = b.token
    if finish then
      local v = view(b.host)
      for i = 1, v.h.mx or 1 do
        local g = 'g' .. suffix(i)
        local t = 't' .. suffix(i)
        local late = finish + TICK
        keep(b.host, g, math.max(tonumber(v.h[g]) or 0, late + v.delay), t, math.max(tonumber(v.h[t]) or 0, late))
      end
      armed = arm(b.host) or armed
    end
  else
    local numbers = {}
    for _, visit in ipairs(b.visits) do
      local packed = lease[visit.n]
      if packed then
        lease[visit.n] = nil
        numbers[#numbers + 1] = visit.n
        conclude(b.host, visit, packed, tonumber(lease.start))
      end
    end
    -- The reported fields of the host are written together, with the end of the lease if it ends here.
    local h, fields = state(b.host), {}
    local function note(field, value)
      h[field] = value
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
    if finish then
      finish = math.max(finish, tonumber(lease.start), tonumber(lease.f) or 0)
      lease.f = finish
      if b.success == '1' then
        note('ts', finish)
        if (h.f or 0) > 0 then note('f', 0) end
      end
      if b.response then note('m', math.floor((h.m or b.response) * 0.75 + b.response * 0.25)) end
    end
    if b.delay and b.delay ~= (h.ad or 0) then note('ad', b.delay) end
    local leaseEnded = #visitsOf(lease) == 0
    if leaseEnded then
      dropLease(b.token)
    else
      if #numbers > 0 then call('HDEL', P .. 'l:' .. b.token, unpack(numbers)) end
      if finish then call('HSET', P .. 'l:' .. b.token, 'f', finish) end
    end
    if leaseEnded and lease.place then
      local delay = math.max(tonumber(lease.delay), h.ad or 0)
      freeHost(b.host, tonumber(lease.place), tonumber(lease.f), delay, fields)
    elseif #fields > 0 then
      keep(b.host, unpack(fields))
    end
    armed = arm(b.host, leaseEnded and lease.place and 'freed') or armed
  end
end
savePlans()
saveRates()
save()
if armed or due then wake() end
if call('HLEN', P .. 'acks') > 10000 then call('UNLINK', P .. 'acks') end
call('HSET', P .. 'acks', worker, request .. ' ' .. table.concat(lost, ' '))
for _, token in ipairs(lost) do reply[#reply + 1] = token end
return reply
