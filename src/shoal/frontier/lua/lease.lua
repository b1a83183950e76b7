-- lease: lease ready hosts of one shard to one worker.
-- ARGV    1 now | 2 worker | 3 request | 4 maximum hosts | 5 maximum visits per host | 6 lease length ms | 7 batch ms
--         8 maximum expiries | 9 1 = the worker sleeps if there is nothing | 10.. spiders of the worker
-- Reply   OK, now, ms until a host may be ready (-1 never), crawls that need page budget {crawl ...}, epoch,
--         then per lease: token, host, delay ms, epoch, robots version, ms that its visits and all waiting visits of the
--         host take at its pace (0 also when the lease is given again), {crawl, priority, entry, ...}
--         EPOCH: another server process wrote here last (epoch.lua). CLOCK, now: the server's clock was set
-- Keeps   a host leaves `ready` before it is returned: two calls cannot take the same slot
--         a robots version is never repeated, even if the host is forgotten: a host without one gets the time in ms
--         the same worker and request again get the same leases: a lost reply costs nothing
-- Frees memory first, so that it runs when the store is full
-- Cost    O(hosts * (log ready + visits))
--include shard open crawls seen queues hosts calendar signals take visits

local worker = text(64, '^[%w_.@-]+$')
local request = text(32, '^%w+$')
local hosts = number(1, 1000)
local most = number(1, 1000)
local ttl = number(1, 86400000)
local batch = number(0, 3600000)
local expiries = number(1, 255)
local sleeps = text(1) == '1'
local spiders, names = {}, {}
while at < #ARGV do
  local sp = text(64, '^[%w_.:-]*$')
  if not spiders[sp] then
    spiders[sp] = true
    names[#names + 1] = sp
  end
end
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')

local EPOCH = tonumber(META.epoch)
local reply = {S.OK, NOW, -1, {}, EPOCH}
local function addToReply(token, host, delay, visits, aheadMs)
  local flat = {}
  for _, visit in ipairs(visits) do
    flat[#flat + 1] = visit[1]
    flat[#flat + 1] = visit[2]
    flat[#flat + 1] = visit[3]
  end
  reply[#reply + 1] = token
  reply[#reply + 1] = host
  reply[#reply + 1] = delay
  reply[#reply + 1] = EPOCH
  reply[#reply + 1] = robotsVersion(state(host))
  reply[#reply + 1] = aheadMs
  reply[#reply + 1] = flat
end

-- A repeated request: its reply was lost, so the same leases are returned again.
local last = call('HGET', P .. 'workers', worker)
if last and string.match(last, '^%w+') == request then
  for token in string.gmatch(string.sub(last, #request + 1), '%S+') do
    local lease = readLease(token)
    local deadline = tonumber(call('ZSCORE', P .. 'leases', token))
    -- The caller has not received the lease yet and counts its time from now. An expired lease stays expired.
    if lease and deadline and deadline > NOW then
      call('ZADD', P .. 'leases', 'XX', NOW + ttl, token)
      local visits = {}
      for _, n in ipairs(visitsOf(lease)) do table.insert(visits, 1, {unpackVisit(lease[tostring(n)])}) end
      addToReply(token, lease.host, tonumber(lease.delay), visits, 0)
    end
  end
  reply[3] = 0
  return reply
end

local hold = tonumber(META.hold) or 0
if hold > NOW then
  reply[3] = hold - NOW
  return reply
end

reapExpired(10, expiries)
for _, key in ipairs(call('ZRANGEBYSCORE', P .. 'expiring', '-inf', NOW, 'LIMIT', 0, 10)) do
  if not crawl(key) then call('ZREM', P .. 'expiring', key) end
end
sweep()

-- Retries and revisits that are due.
local due = call('ZRANGEBYSCORE', P .. 'later', '-inf', NOW, 'LIMIT', 0, 100)
if #due > 0 then
  call('ZREM', P .. 'later', unpack(due))
  for _, member in ipairs(due) do
    local key, prio, host, start = string.match(member, '^(%w+):(%-?%d+):(%S+) ()')
    local c = crawl(key)
    if c and not ended(c) then
      local rose = push(key, c, host, prio, {string.sub(member, start)}, false)
      bump(key, 't', -1)
      bump(key, 'w', 1)
      if enlist(key, host) or rose then arm(host) end
    elseif c and c.kp and c.kt > 0 then
      push(key, c, host, prio, {string.sub(member, start)}, false)
      bump(key, 'kt', -1)
      bump(key, 'kw', 1)
      call('SADD', P .. 'parked:' .. key, host)
    end
  end
end

-- Pages of perpetual crawls whose next visit is due.
openBuckets(200)
-- Pages that signals pull forward.
local searching = search(1000)

-- Hosts of crawls that were resumed, or that got page budget.
for _, key in ipairs(call('SRANDMEMBER', P .. 'unparking', 3)) do
  local c = crawl(key)
  local parked = P .. 'parked:' .. key
  if not c or (ended(c) and not c.kp) then
    for _, host in ipairs(call('SPOP', parked, 100)) do unlist(key, c, host) end
  elseif c.st == 'r' and not c.dry then
    for _, host in ipairs(call('SPOP', parked, c.mp and math.max(1, math.min(100, c.al)) or 100)) do
      enlist(key, host)
      arm(host)
    end
  end
  if (c and (c.st == 'p' or c.dry or c.kp)) or call('EXISTS', parked) == 0 then call('SREM', P .. 'unparking', key) end
end

-- Candidates of the three classes, earliest first.
local lanes = {}
for rank = 0, 2 do
  local candidates = {}
  for _, sp in ipairs(names) do
    local lane = P .. 'ready:' .. rank .. ':' .. sp
    local r = call('ZRANGE', lane, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, hosts + 16, 'WITHSCORES')
    for i = 1, #r, 2 do candidates[#candidates + 1] = {r[i], tonumber(r[i + 1]), lane} end
  end
  if #names > 1 then table.sort(candidates, function(a, b) return a[2] < b[2] end) end
  lanes[rank + 1] = {list = candidates, next = 1}
end

local turns = tonumber(call('HGET', KEYS[1], 'turns')) or 0
-- Hosts of which this worker may take one more slot after all other hosts had their turn.
local repeated = {}
-- One lease in four looks at the lower classes first, so that nothing starves.
local function nextCandidate(turn)
  local order = {1, 2, 3}
  if turn % 4 == 3 then order = turn % 8 == 3 and {2, 3, 1} or {3, 2, 1} end
  for _, rank in ipairs(order) do
    local lane = lanes[rank]
    local candidate = lane.list[lane.next]
    if candidate then
      lane.next = lane.next + 1
      return candidate
    end
  end
  return table.remove(repeated, 1)
end

local deadline = NOW + ttl
-- The earliest time at which another call may find a host; in this loop, only that of hosts that are skipped.
local soonest
local given, tokens, deadlines = 0, {}, {}
local counter = tonumber(call('HGET', KEYS[1], 'tokens')) or 0
local viewed = {}
local othersSleep = false
for _, name in ipairs(call('ZRANGE', P .. 'idle', NOW, '+inf', 'BYSCORE', 'LIMIT', 0, 2)) do
  othersSleep = othersSleep or name ~= worker
end
while given < hosts do
  local candidate = nextCandidate(turns + given)
  if not candidate then break end
  local host, lane = candidate[1], candidate[3]
  local v = (viewed[host] == nil or candidate.again) and view(host)
  viewed[host] = true
  if v and candidate.again then
    -- The visits that were taken may have been of another class than the visits that are left.
    for sp, rank in pairs(v.lanes) do lane = P .. 'ready:' .. rank .. ':' .. sp end
  end
  if v then
    local slot, gate = freeSlot(v)
    if slot and META.unsafe == '1' and v.h.e ~= META.epoch then
      -- The last times of the previous epoch are lost: the host may have had requests until the hold ended.
      gate = math.max(gate, hold + v.delay)
      keep(host, 'e', META.epoch)
      for i = 1, math.max(v.h.mx or 1, v.slots) do
        local g = 'g' .. suffix(i)
        keep(host, g, math.max(tonumber(v.h[g]) or 0, hold + v.delay))
      end
    end
    local holdsSlot = false
    if v.slots > 1 then
      for i = 1, v.h.mx or 1 do
        local token = v.h['k' .. suffix(i)]
        if token and holder(token) == worker then holdsSlot = true end
      end
    end
    if not slot or v.h.x or not next(v.lanes) then
      disarm(v, lane)
    elseif #v.crawls == 0 then
      soonest = NOW
    elseif gate > NOW then
      -- First remove the host from this lane: its crawl there may be parked, and arm updates only the other lanes.
      call('ZREM', lane, host)
      arm(host)
    elseif holdsSlot and NOW < candidate[2] + 100 then
      -- Another worker goes first; if none comes within 100 ms, this worker may take a second slot.
      soonest = math.min(soonest or BIG, candidate[2] + 100)
    else
      local pace = v.delay + (v.h.m or 0)
      local want = pace > 0 and math.max(1, math.min(most, math.floor(batch / pace))) or most
      if v.slots > 1 then
        local waiting = 0
        for _, hostCrawl in ipairs(v.crawls) do
          waiting = waiting + call('LLEN', queue(hostCrawl.key, hostCrawl.best, host))
        end
        want = math.min(want, math.max(1, math.ceil(waiting / v.slots)))
      end
      disarm(v, lane)
      local delay = v.delay
      local visits = take(v, want, spiders)
      if #visits == 0 then
        arm(host)
      else
        counter = counter + 1
        given = given + 1
        local token = RUN .. '.' .. META.shard .. '-' .. counter .. '.' .. worker
        local args = {'host', host, 'place', slot, 'delay', delay, 'start', NOW, 'n', #visits}
        for i, visit in ipairs(visits) do
          args[#args + 1] = i
          args[#args + 1] = visit[1] .. ':' .. visit[2] .. ':' .. visit[3]
        end
        call('HSET', P .. 'l:' .. token, unpack(args))
        keep(host, 'k' .. suffix(slot), token)
        if robotsVersion(v.h) == 0 then keep(host, 'rv', NOW) end
        if META.unsafe == '1' then keep(host, 'e', META.epoch) end
        if slot > (v.h.mx or 1) then keep(host, 'mx', slot) end
        if v.slots > 1 then arm(host, false, NOW) end
        if holdsSlot and not othersSleep then
          -- No other worker came and none sleeps: this worker takes the other slots too, instead of one per call.
          candidate.again = true
          repeated[#repeated + 1] = candidate
        end
        tokens[#tokens + 1] = token
        deadlines[#deadlines + 1] = deadline
        deadlines[#deadlines + 1] = token
        addToReply(token, host, delay, visits, ahead(v, #visits))
      end
    end
  end
end

if given > 0 then
  call('ZADD', P .. 'leases', unpack(deadlines))
  call('HSET', KEYS[1], 'tokens', counter, 'turns', (turns + given) % 8, 'last', NOW)
  if ttl > (tonumber(call('HGET', KEYS[1], 'longest')) or 0) then call('HSET', KEYS[1], 'longest', ttl) end
  -- Limits the entries of workers that never return; an entry is needed only if a reply is lost.
  if call('HLEN', P .. 'workers') > 10000 then call('UNLINK', P .. 'workers') end
  call('HSET', P .. 'workers', worker, request .. ' ' .. table.concat(tokens, ' '))
end

-- Crawls without page budget are reported once a second until they have some, or have ended.
for _, key in ipairs(call('ZRANGEBYSCORE', P .. 'dry', '-inf', NOW, 'LIMIT', 0, 10)) do
  local c = crawl(key)
  if c and c.dry and not ended(c) then
    reply[4][#reply[4] + 1] = key
    call('ZADD', P .. 'dry', NOW + 1000, key)
  else
    call('ZREM', P .. 'dry', key)
  end
end
savePlans()
saveRates()
save()

local function head(name)
  local first = call('ZRANGE', P .. name, 0, 0, 'WITHSCORES')
  if first[2] then soonest = math.min(soonest or BIG, tonumber(first[2])) end
end
if searching or call('SCARD', P .. 'unparking') > 0 then soonest = NOW end
for rank = 0, 2 do
  for _, sp in ipairs(names) do
    local first = call('ZRANGE', P .. 'ready:' .. rank .. ':' .. sp, 0, 0, 'WITHSCORES')
    if first[2] and not (viewed[first[1]] and tonumber(first[2]) <= NOW and given < hosts) then
      soonest = math.min(soonest or BIG, tonumber(first[2]))
    end
  end
end
head('later')
head('calendar')
head('leases')
head('dry')
head('expiring')
if soonest then reply[3] = math.max(0, soonest - NOW) end
if given == 0 then
  if sleeps then
    call('ZREMRANGEBYSCORE', P .. 'idle', '-inf', NOW)
    call('ZADD', P .. 'idle', NOW + 15000, worker)
  end
elseif soonest and soonest <= NOW then
  -- More hosts are ready than this worker takes: wake the next sleeping worker.
  wake()
end
return reply
