-- read_cookies: a cookie jar of a crawl. Writes nothing.
-- ARGV    1 now | 2 crawl | 3 name of the jar | 4 version that the caller has, 0 = none
-- Reply   OK, version (0 = there is no jar), the jar ('' = the caller has this version)
-- Keeps   a value that Shoal did not write does not count as a jar: the next write replaces it
--include shard

local key = text(16, CRAWL)
local name = text(260, HOST)
local known = number(0, BIG)
if wrong then return {S.INVALID, wrong} end
local kept = redis.pcall('HGET', P .. 'jars:' .. key, name)
local version, start
if type(kept) == 'string' then version, start = string.match(kept, '^(%d+)\n()') end
version = tonumber(version) or 0
return {S.OK, version, (version == 0 or version == known) and '' or string.sub(kept, start)}
