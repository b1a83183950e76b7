-- audit: record who changed what. Called on the store's own key.
-- ARGV    1 now | 2 entry (opaque)
-- Reply   OK
-- Keeps   the last 1000 entries, newest first, each with the store's time in ms and a blank in front
--include shard

local entry = text(4096)
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

call('DEL', P .. '-')
call('LPUSH', P .. 'audit', NOW .. ' ' .. entry)
call('LTRIM', P .. 'audit', 0, 999)
return {S.OK}
