-- hasten: make a visit that is due later due now.
-- ARGV    1 now | 2 crawl | 3 its member of `later`
-- Reply   OK, 1 = it was due later
-- Keeps   the delay and the back-off of its host
-- Cost    O(log later)
--include shard open

local key = text(16, CRAWL)
local member = text(ENTRY)
if wrong or string.sub(member, 1, #key + 1) ~= key .. ':' then return {S.INVALID, wrong or 'member'} end
call('DEL', P .. '-')
local known = call('ZSCORE', P .. 'later', member)
if not known then return {S.OK, 0} end
call('ZADD', P .. 'later', 'XX', NOW, member)
wake()
return {S.OK, 1}
