-- waiting: how many hosts of this shard have waiting visits, for all crawls of a spider. Writes nothing.
-- ARGV    1 now | 2 spider
-- Reply   OK, now, hosts that may be requested now, hosts that cool down or back off
-- Cost    O(log ready)
--include shard

local spider = text(64, '^[%w_.:-]*$')
if wrong then return {S.INVALID, wrong} end
local all, cooling = 0, 0
for rank = 0, 2 do
  local lane = P .. 'ready:' .. rank .. ':' .. spider
  all = all + call('ZCARD', lane)
  cooling = cooling + call('ZCOUNT', lane, '(' .. NOW, '+inf')
end
return {S.OK, NOW, all - cooling, cooling}
