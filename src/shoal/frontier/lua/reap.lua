-- reap: take back the leases of a worker that is known to be dead, and all expired leases.
-- ARGV    1 now | 2 worker, '' = none | 3 rank to start from | 4 token and 5 number of the visit that it was parsing,
--         or '' and 0 | 6 maximum blames | 7 maximum expiries
-- Reply   OK, now, number of leases taken back, next rank to start from (-1 = all were checked)
-- Keeps   the host of a dead worker is ready at now plus its delay: its last request may have been open until just now
--         the visit that the worker was parsing is blamed; for the others, the lease counts as expired
-- Cost    O(1000 + visits taken back), at most 100 leases per call
--include shard open crawls queues hosts take visits

local worker = text(64, '^[%w_.@-]*$')
local from = number(0, BIG)
local blamedToken = text(128)
local blamedNumber = number(0, BIG)
local blames = number(1, 255)
local expiries = number(1, 255)
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')
local reaped = reapExpired(100, expiries)
local nextRank = -1
if worker ~= '' then
  local tokens = call('ZRANGE', P .. 'leases', from, from + 999)
  local taken = 0
  for i, token in ipairs(tokens) do
    if holder(token) == worker then
      local lease = readLease(token)
      dropLease(token)
      taken = taken + 1
      local packed, numbers = {}, visitsOf(lease)
      for j, n in ipairs(numbers) do packed[j] = lease[tostring(n)] end
      local blame = {which = BLAME, most = blames, why = 'poison'}
      local expired = {which = EXPIRY, most = expiries, why = 'lease expired'}
      giveBack(lease.host, packed, function(j)
        return token == blamedToken and numbers[j] == blamedNumber and blame or expired
      end)
      if lease.place then freeHost(lease.host, tonumber(lease.place), NOW, tonumber(lease.delay)) end
      arm(lease.host)
    end
    if taken == 100 then
      nextRank = from + i - taken
      break
    end
  end
  if nextRank < 0 and #tokens == 1000 then nextRank = from + 1000 - taken end
  -- The worker's last acknowledgement is kept: an output may still need to know whether it was accepted (void).
  if nextRank < 0 then call('HDEL', P .. 'workers', worker) end
  reaped = reaped + taken
end
save()
if reaped > 0 then wake() end
return {S.OK, NOW, reaped, nextRank}
