-- count: the counts of a crawl in this shard. Writes nothing.
-- ARGV    1 now | 2 crawl
-- Reply   OK, now, state, admitted, waiting, leased, later, stored, failed, excluded, server process, failed and retried,
--         excluded and admitted again, stored and visited again, then reason, count, ...
--         UNKNOWN, server process: this shard has had no visit of the crawl
-- Keeps   all numbers except waiting, leased and later only grow: admitted, failed and excluded include visits that were
--         admitted again. A crawl is finished if the sum of stored, failed and excluded over all shards, read first, equals
--         the sum of admitted over all shards, read afterwards from the same server processes
--include shard

local key = text(16, CRAWL)
if wrong then return {S.INVALID, wrong} end
--include server run
local c = call('HMGET', P .. 'c:' .. key, 'st', 'a', 'w', 'l', 't', 's', 'f', 'x', 'rf', 'rx', 'rs')
if not c[1] then return {S.UNKNOWN, RUN} end
local reply = {S.OK, NOW, c[1]}
for i = 2, 8 do reply[#reply + 1] = tonumber(c[i]) or 0 end
reply[#reply + 1] = RUN
for i = 9, 11 do reply[#reply + 1] = tonumber(c[i]) or 0 end
for _, part in ipairs(call('HGETALL', P .. 'reasons:' .. key)) do reply[#reply + 1] = part end
return reply
