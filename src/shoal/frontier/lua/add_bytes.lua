-- add_bytes: count bytes that a worker has received for a crawl, at the crawl's home shard.
-- ARGV    1 now | 2 id | 3 source, a name of the caller | 4 number of this call, greater than the caller's last | 5 bytes
-- Reply   OK, total  or  UNKNOWN
-- Keeps   a number that was already counted changes nothing, so a repeated call counts once
--         a deleted crawl has a total of 0
-- Cost    O(1); one in 256 new sources removes sources without a call in the last hour, O(sources)
--include shard open facts

local id = text(128, '^[%w_.:@-]+$')
local source = text(64, '^[%w_.:-]+$')
local sequence = number(1, BIG)
local bytes = number(0, BIG)
if wrong then return {S.INVALID, wrong} end

local record = call('HMGET', P .. 'crawl:' .. id, 'key', 'st')
if not record[1] then return {S.UNKNOWN} end
if record[2] == 'd' then return {S.OK, 0} end
local name, counted = P .. 'facts:' .. record[1], P .. 'counted:' .. record[1]
local total = facts(record[1]).bytes or 0
local last = call('HGET', counted, source)
if last and (tonumber(string.match(last, '^%d+')) or 0) >= sequence then return {S.OK, total} end

call('DEL', P .. '-')
local added = math.min(bytes, BIG - total)
call('HSET', name, 'bytes', whole(call('HGET', name, 'bytes') or '0') + added)
call('HSET', counted, source, sequence .. ' ' .. NOW)
if not last and call('HLEN', counted) % 256 == 0 then
  local flat = call('HGETALL', counted)
  for i = 1, #flat, 2 do
    if NOW - (tonumber(string.match(flat[i + 1], ' (%d+)$')) or 0) > 3600000 then call('HDEL', counted, flat[i]) end
  end
end
return {S.OK, total + added}
