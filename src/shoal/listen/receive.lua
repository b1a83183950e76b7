-- receive: give a bridge its entries of a list: first those of dead bridges, else the next ones.
-- KEYS 1 the list | 2 sorted set of bridges by the time of their last heartbeat
-- ARGV 1 the bridge | 2 entries at most | 3 ms without a heartbeat after which a bridge is dead
-- Reply   entries, the newest first: an id, a space, the message
-- Keeps   an entry is in the list or in the list `-taken:` of one bridge; its id is assigned once and kept
-- Cost    O(entries returned)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mine = KEYS[1] .. '-taken:' .. ARGV[1]
redis.call('ZADD', KEYS[2], now, ARGV[1])
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. (now - ARGV[3]), 'LIMIT', 0, 10)) do
  repeat
    local moved = redis.call('LMOVE', KEYS[1] .. '-taken:' .. dead, mine, 'LEFT', 'RIGHT')
  until not moved
  redis.call('ZREM', KEYS[2], dead)
end
if redis.call('EXISTS', mine) == 0 then
  for number = 1, tonumber(ARGV[2]) do
    local message = redis.call('RPOP', KEYS[1])
    if not message then break end
    redis.call('LPUSH', mine, time[1] .. '-' .. time[2] .. '-' .. number .. ' ' .. message)
  end
end
return redis.call('LRANGE', mine, 0, -1)
