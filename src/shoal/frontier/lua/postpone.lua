-- postpone: send no request to this host before now + ms, from any worker.
-- ARGV    1 now | 2 host | 3 ms | 4 1 = a request failed, 2 = and others have succeeded since the previous failure
--         5 failures in a row after which the host is given up, 0 = never | 6 the reason with which its visits then fail
--         7 1 = the server requested the pause
-- Reply   OK, now, failures in a row, 1 = given up
-- Keeps   the gate only moves later. The visits of a host that is given up count as failed and can be retried. Revisits of
--         perpetual crawls do not fail: they wait for the host
-- Cost    O(crawls waiting on the host)
--include shard open crawls queues hosts back_offs

local host = text(260, HOST)
local ms = number(0, 31536000000)
local failed = number(0, 2)
local most = number(0, BIG)
local why = text(64, '^[^%c]+$')
local requested = text(1, '^[01]$')
if wrong then return {S.INVALID, wrong} end

--include server run
call('DEL', P .. '-')
local h = state(host)
if ms > 0 and NOW + ms >= (h.b or 0) then keep(host, 'b', NOW + ms, 'br', why, 'ba', requested) end
if failed > 0 then keep(host, 'f', failed == 1 and (h.f or 0) + 1 or 1, 'br', why) end
local given_up = 0
if failed > 0 and most > 0 and h.f >= most then
  failWaiting(view(host), why, true)
  given_up = 1
end
if failed > 0 and (ms > 0 or given_up == 1) or requested == '1' then noteBackOff(host, ms, h.f or 0, given_up, why) end
arm(host)
save()
return {S.OK, NOW, h.f or 0, given_up}
