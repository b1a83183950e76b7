-- alive: the live workers and their reports. Writes nothing.
-- ARGV    1 now
-- Reply   OK, then per worker: name, ms since its last heartbeat, its report
-- Cost    O(workers)
--include shard beats

local reply, workers = {S.OK}, live()
for i = 1, #workers, 2 do
  reply[#reply + 1] = workers[i]
  reply[#reply + 1] = math.max(0, NOW - tonumber(workers[i + 1]))
  reply[#reply + 1] = call('HGET', P .. 'infos', workers[i]) or ''
end
return reply
