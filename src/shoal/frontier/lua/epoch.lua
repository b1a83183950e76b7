-- epoch: another server process answers than the one that wrote here last, or its clock was stepped.
-- ARGV    1 now | 2 1 = no acknowledged write can have been lost | 3 longest lease of the caller ms | 4 lag ms
--         5 ms by which the server's clock was stepped, 0 = not | 6 the epoch the step was seen in: taken out once
-- Reply   OK, now, epoch, ms until hosts may be leased again
-- Keeps   unless nothing was lost, nothing is leased until every lease that may have been forgotten is over, and each
--         host then adds its own delay. A step is removed from the shard's clock, which continues as before
--include shard

local safe = text(1) == '1'
local longest = number(0, 86400000)
local lag = number(0, 86400000)
local step = number(-BIG, BIG)
local seen = number(0, BIG)
if wrong then return {S.INVALID, wrong} end
call('DEL', P .. '-')
local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
local epoch, hold = tonumber(META[3]), tonumber(META[5]) or 0
if seen ~= 0 and seen ~= epoch then step = 0 end
if run ~= META[4] or step ~= 0 then
  epoch = epoch + 1
  NOW = NOW - step
  call('HSET', KEYS[1], 'epoch', epoch, 'run', run, 'unsafe', (safe and step == 0) and 0 or 1, 'offset', (tonumber(META[8]) or 0) - step)
  if not safe or step ~= 0 then
    hold = math.max(hold, NOW + lag + math.max(longest, tonumber(call('HGET', KEYS[1], 'longest')) or 0))
    call('HSET', KEYS[1], 'hold', hold)
  end
end
return {S.OK, NOW, epoch, math.max(0, hold - NOW)}
