-- write_cookies: replace a cookie jar of a crawl, unless another worker has replaced it.
-- ARGV    1 now | 2 crawl | 3 name of the jar | 4 version that the caller has read, 0 = none | 5 maximum jars | 6 the jar
--         (opaque)
-- Reply   OK, new version, 0 = not written: there is another version, or there are too many jars  or  UNKNOWN
-- Keeps   a version is never given twice: it is not below the time in ms. Nothing is written for an ended crawl
-- Refused as a whole when the store is full: its first write needs memory
--include shard open crawls

local key = text(16, CRAWL)
local name = text(260, HOST)
local known = number(0, BIG)
local most = number(1, BIG)
local jar = text(65536)
if wrong or jar == '' then return {S.INVALID, wrong or 'jar'} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end
local hash = P .. 'jars:' .. key
local kept = redis.pcall('HGET', hash, name)
local version = type(kept) == 'string' and tonumber(string.match(kept, '^(%d+)\n')) or 0
if ended(c) or version ~= known or (not kept and call('HLEN', hash) >= most) then
  save()
  return {S.OK, 0}
end
version = math.max(version + 1, NOW)
call('HSET', hash, name, version .. '\n' .. jar)
save()
return {S.OK, version}
