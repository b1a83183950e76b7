-- read_robots: the stored copy of a robots.txt. Writes nothing.
-- ARGV    1 now | 2 host | 3 name, '<scheme>://<authority> <token>'
-- Reply   OK, now, the copy ('' = there is none)
-- Keeps   a key that Shoal did not write does not count as a copy: the next write replaces it
--include shard

local host = text(260, HOST)
local name = text(1600, '^https?://%S+ [^%c]+$')
if wrong then return {S.INVALID, wrong} end
local kept = redis.pcall('GET', P .. 'robots:' .. host .. ':' .. name)
local start = type(kept) == 'string' and string.match(kept, '^%d+\n()')
return {S.OK, NOW, start and string.sub(kept, start) or ''}
