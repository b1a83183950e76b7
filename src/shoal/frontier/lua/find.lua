-- find: what a shard knows about one URL of a crawl without reading its queues. Writes nothing.
-- ARGV    1 now | 2 crawl | 3 host | 4 fingerprint (signed decimal)
-- Reply   OK, now, 1 = the URL was admitted, stored pages of its host (counted if they are limited), bytes received from it
--         UNKNOWN: this shard has had no visit of the crawl
-- Cost    O(1)
--include shard crawls seen

local key = text(16, CRAWL)
local host = text(260, HOST)
local fingerprint = text(20, '^%-?%d+$')
if wrong then return {S.INVALID, wrong} end
local flat = call('HMGET', P .. 'c:' .. key, 'g', 'gn', 'on')
local generation, sets, old = tonumber(flat[1]) or 0, tonumber(flat[2]), tonumber(flat[3]) or 0
if not sets then return {S.UNKNOWN} end

local function has(number, count)
  return count > 0 and call('SISMEMBER', seenSet(key, number, count, level(count), fingerprint), fingerprint) == 1
end
local seen = has(generation, sets) or has(generation - 1, old)
local counts = call('HMGET', P .. 'hp:' .. key, host, '!#' .. host)
return {S.OK, NOW, seen and 1 or 0, tonumber(counts[1]) or 0, tonumber(counts[2]) or 0}
