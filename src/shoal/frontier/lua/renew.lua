-- renew: extend leases, and add visits to them while their hosts have more.
-- ARGV    1 now | 2 lease length ms | 3 batch ms | then per lease: token, visits known to the holder, maximum visits
--         it may hold
-- Reply   OK, now, then per lease: {robots version, ms that its visits and all waiting visits of the host take at its pace
--         (0 when no visits were added), then number, crawl, priority, entry of each visit the holder does not know},
--         or LOST
-- Keeps   a lease is lost after its deadline, even if no other worker has taken its host yet
--         visits are numbered, so the next renewal makes up for a lost reply
-- Cost    O(leases + visits)
--include shard open crawls queues hosts take visits

local ttl = number(1, 86400000)
local batch = number(0, 3600000)
local renewals = {}
while not wrong and at < #ARGV do
  renewals[#renewals + 1] = {token = text(128), known = number(0, BIG), most = number(0, 1000)}
end
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')
local reply = {S.OK, NOW}
local hold = tonumber(META.hold) or 0
for _, renewal in ipairs(renewals) do
  local deadline = tonumber(call('ZSCORE', P .. 'leases', renewal.token))
  local lease = deadline and deadline > NOW and not stale(renewal.token) and readLease(renewal.token)
  if not lease then
    reply[#reply + 1] = S.LOST
  else
    call('ZADD', P .. 'leases', 'XX', NOW + ttl, renewal.token)
    local numbers, aheadMs = visitsOf(lease), 0
    if lease.place and hold <= NOW and #numbers < renewal.most then
      local v = view(lease.host)
      local pace = math.max(tonumber(lease.delay), v.delay) + (v.h.m or 0)
      local want = renewal.most - #numbers
      if pace > 0 then want = math.min(want, math.floor(batch / pace) - #numbers) end
      local spiders = {}
      for _, n in ipairs(numbers) do
        local c = crawl((unpackVisit(lease[tostring(n)])))
        if c then spiders[c.sp] = true end
      end
      if want > 0 and v.delay <= tonumber(lease.delay) and not v.h.x then
        local last = tonumber(lease.n)
        for _, visit in ipairs(take(v, want, spiders)) do
          last = last + 1
          lease[tostring(last)] = visit[1] .. ':' .. visit[2] .. ':' .. visit[3]
          call('HSET', P .. 'l:' .. renewal.token, last, lease[tostring(last)])
        end
        call('HSET', P .. 'l:' .. renewal.token, 'n', last)
        numbers = visitsOf(lease)
        aheadMs = ahead(v, #numbers)
      end
    end
    local unknown = {tonumber(state(lease.host).rv) or 0, aheadMs}
    for i = #numbers, 1, -1 do
      local n = numbers[i]
      if n > renewal.known then
        local key, prio, entry = unpackVisit(lease[tostring(n)])
        unknown[#unknown + 1] = n
        unknown[#unknown + 1] = key
        unknown[#unknown + 1] = prio
        unknown[#unknown + 1] = entry
      end
    end
    reply[#reply + 1] = unknown
  end
end
if #renewals > 0 and ttl > (tonumber(call('HGET', KEYS[1], 'longest')) or 0) then
  call('HSET', KEYS[1], 'longest', ttl)
end
save()
-- A crawl whose page budget was used up here gets more only by a call of `lease`: wake a sleeping worker, which makes one.
if call('EXISTS', P .. 'dry') == 1 then wake() end
return reply
