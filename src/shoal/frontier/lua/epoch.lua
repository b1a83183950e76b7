-- epoch: start a new epoch, because another server process serves the shard now, or its clock was set.
-- ARGV    1 now | 2 1 = no acknowledged write can have been lost, 2 = and no other machine has workers
--         3 longest lease of the caller ms | 4 lag ms | 5 the epoch that the caller has seen
--         6 the epoch of its reading of the clock, '' = it has none
--         7 ms by which the clock is ahead of that reading, 0 = it agrees
-- Reply   OK, now, epoch, ms until hosts may be leased again
-- Keeps   one caller changes an epoch: the epoch that the others have seen is then no longer current
--         unless nothing was lost, nothing is leased until every lease that may have been forgotten has expired, and each
--         host then adds its own delay
--         the shard's time continues as before: the offset removes a clock step. Without a reading the step is unknown,
--         except that time never goes back; a worker that has a reading corrects it later (doubt)
--include shard server

local durable = text(1, '^[012]$')
local safe = durable ~= '0'
local longest = number(0, 86400000)
local lag = number(0, 86400000)
local seenEpoch = number(0, BIG)
local readingEpoch = numberOr(nil, 0, BIG)
local step = number(-BIG, BIG)
if wrong then return {S.INVALID, wrong} end
call('DEL', P .. '-')
local EPOCH, DOUBT, LAST = tonumber(META.epoch), tonumber(META.doubt), tonumber(META.last) or 0
local hold = tonumber(META.hold) or 0
if seenEpoch ~= EPOCH then return {S.OK, NOW, EPOCH, math.max(0, hold - NOW)} end

local run = serverRun()
local corrects = readingEpoch and DOUBT and readingEpoch < SINCE
if not readingEpoch then step = TICK == 1 and NOW < LAST - 1000 and NOW - LAST or 0 end
local since, doubt = SINCE, DOUBT
if corrects then since, doubt = DOUBT, nil end
if run ~= META.run or step ~= 0 then
  EPOCH = EPOCH + 1
  if not readingEpoch and TICK == 1 then since, doubt = EPOCH, DOUBT or SINCE end
  NOW = NOW - step
  -- Other callers may have read the clock since it was set: their readings are no longer valid.
  if step ~= 0 and (corrects or run == META.run) then since = EPOCH end
  call('HSET', KEYS[1], 'epoch', EPOCH, 'run', run, 'unsafe', (safe and step == 0) and 0 or 1,
    'offset', (tonumber(META.offset) or 0) - step, 'last', NOW)
  if not safe or step ~= 0 then
    hold = NOW + lag + math.max(longest, tonumber(call('HGET', KEYS[1], 'longest')) or 0)
  elseif not readingEpoch and TICK == 1 and durable == '1' and call('EXISTS', P .. 'leases') == 1 then
    -- Holders of leases may have a reading of the clock: they go first.
    hold = math.max(hold, NOW + lag)
  end
  if hold > 0 then call('HSET', KEYS[1], 'hold', hold) end
end
call('HSET', KEYS[1], 'since', since)
if doubt then call('HSET', KEYS[1], 'doubt', doubt) else call('HDEL', KEYS[1], 'doubt') end
return {S.OK, NOW, EPOCH, math.max(0, hold - NOW)}
