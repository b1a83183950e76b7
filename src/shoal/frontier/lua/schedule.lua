-- schedule: the pages of a perpetual crawl in this shard's calendar, and the pages and pace of one host. Writes nothing.
-- ARGV    1 now | 2 crawl | 3 host, '' = none
-- Reply   OK, now, pages in the calendar, ms until the first of them is due (-1 = there is none, or it is not among the next
--         500 buckets of all crawls), ms that a request to the host takes with its delay, pages of the host by rate class
--         as '<class>:<pages> ...'
--         UNKNOWN: this shard has had no visit of the crawl
-- Cost    O(500)
--include shard crawls queues hosts

local key = text(16, CRAWL)
local host = text(260)
if wrong or (host ~= '' and not string.find(host, HOST)) then return {S.INVALID, wrong or 'host'} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end
local first, pace, pages = -1, 0, ''
if host == '' then
  local buckets = call('ZRANGE', P .. 'calendar', 0, 499, 'WITHSCORES')
  for i = 1, #buckets, 2 do
    if string.sub(buckets[i], 1, #key + 1) == key .. ':' then
      first = math.max(0, tonumber(buckets[i + 1]) - NOW)
      break
    end
  end
else
  local h = state(host)
  pace = math.max(h.d or c.d, h.cd or 0, h.ad or 0) + (h.m or 0)
  pages = string.match(call('HGET', P .. 'rates:' .. key, host) or '', '^%d+ %d+ (.*)$') or ''
end
return {S.OK, NOW, c.sc, first, pace, pages}
