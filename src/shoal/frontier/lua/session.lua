-- session: start, look up or end a session of the dashboard. Called on the store's own key.
-- ARGV    1 now | 2 b start, l look up, e end | 3 digest of its id | 4 start: its owner (opaque), else ''
-- Reply   OK, its owner, '' = there is no such session
-- Keeps   at most 10,000 sessions, the most recently used ones. A session ends after twelve hours without a look-up
-- Cost    O(log sessions)
--include shard

local what = text(1, '^[ble]$')
local id = text(64, '^%x+$')
local whose = text(256)
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

local IDLE, MOST = 43200000, 10000
call('DEL', P .. '-')
local seen, owners = P .. 'sessions', P .. 'owners'
local function drop(ids)
  if #ids == 0 then return end
  call('ZREM', seen, unpack(ids))
  call('HDEL', owners, unpack(ids))
end

-- At most 100 a call.
drop(call('ZRANGEBYSCORE', seen, '-inf', NOW - IDLE, 'LIMIT', 0, 100))
if what == 'e' then drop({id}) return {S.OK, ''} end
if what == 'b' then
  drop(call('ZRANGE', seen, 0, call('ZCARD', seen) - MOST))
  call('HSET', owners, id, whose)
else
  local last = tonumber(call('ZSCORE', seen, id))
  if not last or last <= NOW - IDLE then return {S.OK, ''} end
end
call('ZADD', seen, NOW, id)
return {S.OK, call('HGET', owners, id) or ''}
