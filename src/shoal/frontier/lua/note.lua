-- note: how the visits of a crawl have ended, in its record at its home shard, before its counts are freed.
-- ARGV    1 now | 2 id | 3 counts
-- Reply   OK, what is noted  or  UNKNOWN
-- Keeps   what was noted first: who frees the crawl again finds less
-- Frees memory first, so that it runs when the store is full
--include shard open

local id = text(128, '^[%w_.:@-]+$')
local counts = text(1048576)
if wrong then return {S.INVALID, wrong} end

local record = P .. 'crawl:' .. id
if call('EXISTS', record) == 0 then return {S.UNKNOWN} end
call('DEL', P .. '-')
if counts ~= '' then call('HSETNX', record, 'freed', counts) end
return {S.OK, call('HGET', record, 'freed') or ''}
