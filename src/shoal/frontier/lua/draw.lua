-- draw: grant page budget to one shard, from the crawl's home shard.
-- ARGV    1 now | 2 id | 3 shard | 4 total received there | 5 total returned from there | 6 number of pages
-- Reply   OK, total granted to that shard, pages left here
-- Keeps   totals only grow, so a call that is repeated, or whose caller died before it called allow, grants nothing twice
--         if one of the two shards has lost writes, its totals are too low: the higher totals count, and pages that were
--         granted twice are missing here (left < 0) until they are returned
--include shard open

local id = text(128)
local shard = text(5, '^%d+$')
local received = number(0, BIG)
local returned = number(0, BIG)
local want = number(0, BIG)
if wrong then return {S.INVALID, wrong} end
call('DEL', P .. '-')
local record = P .. 'crawl:' .. id
local r = call('HMGET', record, 'key', 'left')
if not r[1] then return {S.UNKNOWN} end
local grants = P .. 'grants:' .. r[1]
local left = tonumber(r[2])
local granted = tonumber(call('HGET', grants, 'g' .. shard)) or 0
local known = tonumber(call('HGET', grants, 'r' .. shard)) or 0
if returned ~= known then
  left = left + returned - known
  call('HSET', grants, 'r' .. shard, returned)
end
if granted < received then
  left = left + granted - received
  granted = received
  call('HSET', grants, 'g' .. shard, granted)
end
if granted == received then
  local more = math.max(0, math.min(want, left))
  left = left - more
  granted = granted + more
  call('HSET', grants, 'g' .. shard, granted)
end
call('HSET', record, 'left', left)
return {S.OK, granted, left}
