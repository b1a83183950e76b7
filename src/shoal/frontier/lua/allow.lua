-- allow: a shard's side of the page budget: receive pages that were granted, return pages that it cannot use.
-- ARGV    1 now | 2 crawl | 3 total granted, or '' | 4 1 = return pages that no waiting visit needs
-- Reply   OK, total received, total returned, page budget, waiting, stored  or  UNKNOWN
-- Keeps   totals only grow: a repeated call changes nothing
--include shard open crawls

local key = text(16, CRAWL)
local granted = numberOr(nil, 0, BIG)
local back = text(1) == '1'
if wrong then return {S.INVALID, wrong} end
call('DEL', P .. '-')
local c = crawl(key)
if not c then return {S.UNKNOWN} end
if granted and granted > c.rc then
  bump(key, 'al', granted - c.rc)
  put(key, 'rc', granted)
  if c.dry then
    c.dry = nil
    call('HDEL', P .. 'c:' .. key, 'dry')
    call('ZREM', P .. 'dry', key)
    call('SADD', P .. 'unparking', key)
    wake()
  end
end
if back and c.al > c.w then
  bump(key, 'rt', c.al - c.w)
  put(key, 'al', c.w)
end
save()
return {S.OK, c.rc, c.rt, c.al, c.w, c.s}
