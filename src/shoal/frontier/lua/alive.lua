-- alive: the live workers and their reports. Writes nothing.
-- ARGV    1 now
-- Reply   OK, then per worker: name, ms since its last heartbeat, its report
-- Cost    O(workers)
--include shard beats

local reply, seen = {S.OK}, live()
for i = 1, #seen, 2 do
  reply[#reply + 1] = seen[i]
  reply[#reply + 1] = math.max(0, NOW - tonumber(seen[i + 1]))
  reply[#reply + 1] = call('HGET', P .. 'infos', seen[i]) or ''
end
return reply
