-- freeze: refuse all writes to this shard for a time, while its slot is moved key by key or it is dumped.
-- ARGV    1 now | 2 ms from now, 0 = thaw
-- Reply   OK
--include shard

local ms = number(0, 86400000)
if wrong then return {S.INVALID, wrong} end
call('DEL', P .. '-')
if ms == 0 then call('HDEL', KEYS[1], 'frozen') else call('HSET', KEYS[1], 'frozen', NOW + ms) end
if ms == 0 then wake() end
return {S.OK}
