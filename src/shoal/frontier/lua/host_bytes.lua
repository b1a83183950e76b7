-- host_bytes: count the bytes that a crawl has received from one host.
-- ARGV    1 now | 2 crawl | 3 host | 4 bytes to add, 0 to read
-- Reply   OK, total  or  UNKNOWN
-- Keeps   the total belongs to the crawl and is purged with it. A repeated call counts twice
-- Cost    O(1)
--include shard open

local key = text(16, CRAWL)
local host = text(260, HOST)
local bytes = number(0, BIG)
if wrong then return {S.INVALID, wrong} end
if call('EXISTS', P .. 'c:' .. key) == 0 then return {S.UNKNOWN} end

-- A field with a ! in front is not a page count; a dump leaves it out.
local name, field = P .. 'hp:' .. key, '!#' .. host
local total = tonumber(call('HGET', name, field)) or 0
if bytes > 0 then
  call('DEL', P .. '-')
  total = math.min(total + bytes, BIG)
  call('HSET', name, field, string.format('%.0f', total))
end
return {S.OK, total}
