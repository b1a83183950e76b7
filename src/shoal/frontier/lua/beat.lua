-- beat: this worker lives now. Called on the store's own key, as alive and leave are.
-- ARGV    1 now | 2 worker | 3 what it says of itself (opaque)
-- Reply   OK, names of all live workers
-- Keeps   at most 10,000 workers: one more is not entered, and works without an entry
-- Cost    O(workers)
--include shard beats

local worker = text(64, '^[%w_.@-]+$')
local info = text(4096)
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

call('DEL', P .. '-')
dropSilent()
if call('ZCARD', P .. 'beats') < MOST_WORKERS or call('ZSCORE', P .. 'beats', worker) then
  call('ZADD', P .. 'beats', NOW, worker)
  call('HSET', P .. 'infos', worker, info)
end
local reply, seen = {S.OK}, live()
for i = 1, #seen, 2 do reply[#reply + 1] = seen[i] end
return reply
