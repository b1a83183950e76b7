-- postpone: no request to this host before now + ms, by anybody.
-- ARGV    1 now | 2 host | 3 ms | 4 1 = a request failed | 5 failures in a row after which its visits are set aside,
--         0 = never | 6 the reason they then fail with
-- Reply   OK, now, failures in a row, 1 = set aside
-- Keeps   the gate only moves later. What is set aside counts as failed and can be retried
-- Cost    O(crawls waiting on the host)
--include shard open crawls seen queues hosts

local host = text(260, HOST)
local ms = number(0, 31536000000)
local failed = text(1) == '1'
local most = number(0, BIG)
local why = text(64, '^[^%c]+$')
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')
local h = state(host)
keep(host, 'b', math.max(h.b or 0, NOW + ms))
if failed then keep(host, 'f', (h.f or 0) + 1) end
local aside = 0
if failed and most > 0 and h.f >= most then
  setAside(view(host), why)
  aside = 1
end
arm(host)
save()
return {S.OK, NOW, h.f or 0, aside}
