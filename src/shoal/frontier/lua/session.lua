-- session: start, look up or end a session of the dashboard. Called on the store's own key.
-- ARGV    1 now | 2 b start, l look up, e end | 3 digest of its id | 4 start: its owner (opaque), else ''
-- Reply   OK, its owner, '' = there is no such session
-- Keeps   at most 10,000 sessions, the most recently used ones. A session ends after twelve hours without a look-up
-- Cost    O(log sessions)
--include shard

local action = text(1, '^[ble]$')
local id = text(64, '^%x+$')
local owner = text(256)
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

local IDLE, MOST = 43200000, 10000
call('DEL', P .. '-')
local sessions, owners = P .. 'sessions', P .. 'owners'
local function drop(ids)
  if #ids == 0 then return end
  call('ZREM', sessions, unpack(ids))
  call('HDEL', owners, unpack(ids))
end

-- At most 100 per call.
drop(call('ZRANGEBYSCORE', sessions, '-inf', NOW - IDLE, 'LIMIT', 0, 100))
if action == 'e' then drop({id}) return {S.OK, ''} end
if action == 'b' then
  drop(call('ZRANGE', sessions, 0, call('ZCARD', sessions) - MOST))
  call('HSET', owners, id, owner)
else
  local last = tonumber(call('ZSCORE', sessions, id))
  if not last or last <= NOW - IDLE then return {S.OK, ''} end
end
call('ZADD', sessions, NOW, id)
return {S.OK, call('HGET', owners, id) or ''}
