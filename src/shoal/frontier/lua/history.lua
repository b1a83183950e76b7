-- history: the history of a crawl or of the fleet, by minute for a day and by hour for 90 days. A crawl's is at its home
-- shard, the fleet's (named 'fleet') at the store's own key.
-- ARGV    1 now | 2 crawl or 'fleet' | 3 minute | 4 hour, both since 1970 | 5 point by minute | 6 point by hour; both '' to
--         read only. A point is packed; the first of its values is its minute or hour
-- Reply   OK, the last point by minute before this one, or ''
-- Keeps   at most 1440 and 2160 points. A point of the same minute or hour replaces the last one; an older one changes
--         nothing. Lists without a write expire after a day and after 90 days
--include shard

local name = text(16, CRAWL)
local times = {number(0, BIG), number(0, BIG)}
local points = {text(200), text(200)}
if wrong or at < #ARGV then return {S.INVALID, wrong or 'arguments'} end

local kinds, most, seconds = {'hm:', 'hh:'}, {1440, 2160}, {90000, 7862400}
local last = call('LINDEX', P .. 'hm:' .. name, -1) or ''
if points[1] == '' then return {S.OK, last} end
call('DEL', P .. '-')
for i, kind in ipairs(kinds) do
  local list = P .. kind .. name
  local newest = call('LINDEX', list, -1)
  -- A point in any other format counts as older: no decision depends on it.
  local read, point = pcall(cmsgpack.unpack, newest or '')
  local time_ = read and type(point) == 'table' and tonumber(point[1]) or -1
  if newest and time_ == times[i] then
    call('LSET', list, -1, points[i])
  elseif time_ < times[i] then
    call('RPUSH', list, points[i])
    call('LTRIM', list, -most[i], -1)
  end
  call('EXPIRE', list, seconds[i])
end
return {S.OK, last}
