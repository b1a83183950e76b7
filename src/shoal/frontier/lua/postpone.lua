-- postpone: no request to this host before now + ms, by anybody.
-- ARGV    1 now | 2 host | 3 ms | 4 1 = a request failed, 2 = and others have succeeded since the failure before
--         5 failures in a row after which its visits are set aside, 0 = never | 6 the reason they then fail with
--         7 1 = the server requested the pause
-- Reply   OK, now, failures in a row, 1 = set aside
-- Keeps   the gate only moves later. What is set aside counts as failed and can be retried. Revisits of perpetual crawls
--         are not set aside: they wait for the host
-- Cost    O(crawls waiting on the host)
--include shard open crawls queues hosts rests

local host = text(260, HOST)
local ms = number(0, 31536000000)
local failed = number(0, 2)
local most = number(0, BIG)
local why = text(64, '^[^%c]+$')
local asked = text(1, '^[01]$')
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')
local h = state(host)
if ms > 0 and NOW + ms >= (h.b or 0) then keep(host, 'b', NOW + ms, 'br', why, 'ba', asked) end
if failed > 0 then keep(host, 'f', failed == 1 and (h.f or 0) + 1 or 1, 'br', why) end
local aside = 0
if failed > 0 and most > 0 and h.f >= most then
  setAside(view(host), why, true)
  aside = 1
end
if failed > 0 and (ms > 0 or aside == 1) or asked == '1' then noteRest(host, ms, h.f or 0, aside, why) end
arm(host)
save()
return {S.OK, NOW, h.f or 0, aside}
