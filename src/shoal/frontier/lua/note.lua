-- note: store the final counts of a crawl in its record at its home shard, before its data is deleted.
-- ARGV    1 now | 2 id | 3 counts
-- Reply   OK, the stored counts  or  UNKNOWN
-- Keeps   the first counts: after a crash, a second attempt would find fewer
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
