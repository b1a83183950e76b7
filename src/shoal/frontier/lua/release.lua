-- release: free the slot of a lease before it expires, and return the visits that were not made.
-- ARGV    1 now | 2 maximum blames | then per lease: token, ms since its last request finished ('' = none was made),
--         number of the visit to blame for its worker's death (0 = none), visits to keep, their numbers
-- Reply   OK, now, tokens of lost leases
-- Keeps   visits to keep (fetched, but not yet written to the outputs) stay leased until they are acknowledged or expire
--         the others return to the front of their queue, in their old order
-- Cost    O(visits)
--include shard open crawls queues hosts take visits

local blames = number(1, 255)
local blocks = {}
while not wrong and at < #ARGV do
  local b = {token = text(128), ago = numberOr(nil, 0, BIG), blamed = number(0, BIG), n = number(0, 1000), kept = {}}
  for _ = 1, wrong and 0 or b.n do b.kept[text(12, '^%d+$')] = true end
  blocks[#blocks + 1] = b
end
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')
local reply = {S.OK, NOW}
for _, b in ipairs(blocks) do
  local lease = readLease(b.token)
  if not lease then
    reply[#reply + 1] = b.token
  else
    local packed, numbers, kept = {}, {}, 0
    for _, n in ipairs(visitsOf(lease)) do
      if b.kept[tostring(n)] then
        kept = kept + 1
      else
        numbers[#numbers + 1] = n
        packed[#packed + 1] = lease[tostring(n)]
      end
    end
    local blame = {which = BLAME, most = blames, why = 'poison'}
    giveBack(lease.host, packed, function(i) return numbers[i] == b.blamed and blame end)
    local finish = b.ago and math.max(NOW - b.ago, tonumber(lease.start))
    finish = math.max(finish or 0, tonumber(lease.f) or 0)
    if lease.place then
      freeHost(lease.host, tonumber(lease.place), finish > 0 and finish or nil, tonumber(lease.delay))
    end
    if kept == 0 then
      dropLease(b.token)
    else
      call('HDEL', P .. 'l:' .. b.token, 'place', unpack(numbers))
    end
    if arm(lease.host) then wake() end
  end
end
save()
return reply
