-- beat: a worker's heartbeat. Called on the store's own key, like alive and leave.
-- ARGV    1 now | 2 worker | 3 1 = it owns shards | 4 its report (opaque)
-- Reply   OK, names of all live workers that own shards
-- Keeps   at most 10,000 workers: a further worker is not listed, but works
-- Cost    O(workers)
--include shard beats

local worker = text(64, '^[%w_.@-]+$')
local owns = text(1, '^[01]$') == '1'
local info = text(4096)
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

call('DEL', P .. '-')
dropSilent()
if call('ZCARD', P .. 'beats') < MOST_WORKERS or call('ZSCORE', P .. 'beats', worker) then
  call('ZADD', P .. 'beats', NOW, worker)
  call('HSET', P .. 'infos', worker, info)
  call(owns and 'SREM' or 'SADD', P .. 'nonowners', worker)
end
local reply, workers, nonowners = {S.OK}, live(), {}
for _, name in ipairs(call('SMEMBERS', P .. 'nonowners')) do nonowners[name] = true end
for i = 1, #workers, 2 do
  if not nonowners[workers[i]] then reply[#reply + 1] = workers[i] end
end
return reply
