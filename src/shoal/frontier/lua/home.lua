-- home: a crawl's record at its home shard. Writes nothing.
-- ARGV    1 now | 2 id, or '' and 3 key
-- Reply   OK, now, field, value, ...  or  UNKNOWN
--include shard

local id = text(128)
local key = text(16)
if wrong then return {S.INVALID, wrong} end
if id == '' then id = call('HGET', P .. 'keys', key) or '' end
local record = call('HGETALL', P .. 'crawl:' .. id)
if #record == 0 then return {S.UNKNOWN} end
return {S.OK, NOW, unpack(record)}
