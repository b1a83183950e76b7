-- write_robots: store a copy of a robots.txt, and its effect on its host.
-- ARGV    1 now | 2 host | 3 name, '<scheme>://<authority> <token>' | 4 1 = its rules are known (it was read, or there is
--         none) | 5 its Crawl-delay ms | 6 the copy (opaque), '' = change only the host
-- Reply   OK, robots version of the host
-- Keeps   a version is never given twice, even if the host was forgotten in between: it is not below the time in ms
--         known rules set the host's Crawl-delay: the larger of the copies of http and https for this token
--         the gate only moves later
-- Refused as a whole when the store is full, unless there is no copy: its first write needs memory
-- Cost    O(the copy + crawls waiting on the host)
--include shard open crawls queues hosts

local MONTH = 2592000000
local host = text(260, HOST)
local name = text(1600, '^https?://%S+ [^%c]+$')
local known = text(1, '^[01]$') == '1'
local delay = number(0, 86400000)
local copy = text(3000000)
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

local h = state(host)
local version = robotsVersion(h)
if copy == '' then
  call('DEL', P .. '-')
else
  call('SET', P .. 'robots:' .. host .. ':' .. name, delay .. '\n' .. copy, 'PX', MONTH)
  version = math.max(version + 1, NOW)
  keep(host, 'rv', version)
end
if known then
  local scheme, rest = string.match(name, '^(https?)(://.+)$')
  local other = P .. 'robots:' .. host .. ':' .. (scheme == 'http' and 'https' or 'http') .. rest
  local head = redis.pcall('GETRANGE', other, 0, 15)
  local otherDelay = type(head) == 'string' and tonumber(string.match(head, '^(%d+)\n')) or 0
  keep(host, 'rk', 1, 'cd', math.max(delay, otherDelay))
end
if arm(host) then wake() end
save()
return {S.OK, version}
