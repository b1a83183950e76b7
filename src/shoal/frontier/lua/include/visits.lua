-- visits: how a visit leaves a lease. A leased visit is stored as '<crawl>:<priority>:<entry>'.

local function unpackVisit(packed)
  local key, prio, start = string.match(packed, '^(%w+):(%-?%d+):()')
  return key, prio, string.sub(packed, start)
end

local function fail(key, host, prio, entry, why)
  bump(key, 'f', 1)
  reason(key, 'failed:' .. why, 1)
  call('RPUSH', P .. 'failed:' .. key, prio .. ':' .. host .. ' ' .. why .. '\n' .. entry)
end

-- A visit returns to a crawl that has ended. It counts as excluded, and
-- is kept if the crawl may continue under a higher limit.
local function dropVisit(key, c, host, prio, entry)
  bump(key, 'x', 1)
  reason(key, 'excluded:' .. (c.kp or 'stopped'), 1)
  if c.kp then
    push(key, c, host, prio, {entry}, true)
    bump(key, 'kw', 1)
    call('SADD', P .. 'parked:' .. key, host)
  end
end

-- Return a lease's visits to the front of their queues, in their old order.
-- `packed`: the visits, newest first. `marks(i)`: how visit i is marked (`which`: EXPIRY or BLAME), and at which count
-- of such marks (`most`) it fails; false or nil = not at all. Returns whether visits wait again.
local function giveBack(host, packed, marks)
  local returned = false
  for i, p in ipairs(packed) do
    local key, prio, entry = unpackVisit(p)
    local c = crawl(key)
    if c then
      bump(key, 'l', -1)
      unreserve(key, c, host, false)
      local m = marks(i)
      local count
      if m then entry, count = mark(entry, m.which) end
      if ended(c) then
        dropVisit(key, c, host, prio, entry)
      elseif m and count >= m.most then
        fail(key, host, prio, entry, m.why)
      else
        push(key, c, host, prio, {entry}, true)
        bump(key, 'w', 1)
        enlist(key, host)
        returned = true
      end
    end
  end
  return returned
end

-- The numbered visits of a lease, newest first, so that giving them back keeps their order.
local function visitsOf(lease)
  local numbers = {}
  for field in pairs(lease) do
    if tonumber(field) then numbers[#numbers + 1] = tonumber(field) end
  end
  table.sort(numbers, function(a, b) return a > b end)
  return numbers
end

local function readLease(token)
  local flat = call('HGETALL', P .. 'l:' .. token)
  if #flat == 0 then return nil end
  local lease = {}
  for i = 1, #flat, 2 do lease[flat[i]] = flat[i + 1] end
  return lease
end

local function dropLease(token)
  call('UNLINK', P .. 'l:' .. token)
  call('ZREM', P .. 'leases', token)
end

-- Reap expired leases: their visits return to their queues, and the host is ready at the deadline plus its delay.
local function reapExpired(most, expiries)
  local tokens = call('ZRANGEBYSCORE', P .. 'leases', '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #tokens, 2 do
    local token, deadline = tokens[i], tonumber(tokens[i + 1])
    local lease = readLease(token)
    dropLease(token)
    if lease then
      local packed = {}
      for _, n in ipairs(visitsOf(lease)) do packed[#packed + 1] = lease[tostring(n)] end
      local expired = {which = EXPIRY, most = expiries, why = 'lease expired'}
      giveBack(lease.host, packed, function() return expired end)
      if lease.place then freeHost(lease.host, tonumber(lease.place), deadline, tonumber(lease.delay)) end
      arm(lease.host)
    end
  end
  return #tokens / 2
end
