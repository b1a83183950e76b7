-- change: change a crawl's state, at its home shard. sync copies it to the other shards.
-- ARGV    1 now | 2 id | 3 new state (r p s e f, d = deleted except for its id) | 4 why | 5 specification or '' (unchanged)
--         6 new page limit, 0 = none; '' unchanged | 7 the version in another shard, 0 = not higher than here: if it is
--         higher, this shard has lost writes, and the next version follows that one
--         why with p: only a running crawl is paused, for that reason; with r: only a crawl paused for it is resumed
-- Reply   OK, key, version, state, specification, why  or  UNKNOWN  or  ENDED, state
-- Keeps   stopped and expired are permanent. A crawl that finished because nothing was left can be reopened, to retry
--         failed visits; one that has reached a limit only with a new specification, which has a higher limit
--include shard open

local id = text(128, '^[%w_.:@-]+$')
local newState = text(1, '^[rpsefd]$')
local why = text(64, '^[^%c]*$')
local spec = text(1048576)
local pages = numberOr(nil, 0, BIG)
local otherVersion = number(0, BIG)
if wrong then return {S.INVALID, wrong} end

call('DEL', P .. '-')
local record = P .. 'crawl:' .. id
local current = call('HMGET', record, 'key', 'v', 'st', 'spec', 'why')
if not current[1] then return {S.UNKNOWN} end
local oldState = current[3]
local open = oldState == 'r' or oldState == 'p'
if oldState == 'd' and newState ~= 'd' then return {S.ENDED, oldState} end
if not open and newState ~= oldState and newState ~= 'd'
  and not (oldState == 'f' and newState == 'r' and (current[5] == 'finished' or spec ~= '')) then
  return {S.ENDED, oldState}
end
if open and newState == 'd' then return {S.RUNNING} end
if why ~= '' and ((newState == 'p' and oldState == 'p')
  or (newState == 'r' and (oldState ~= 'p' or current[5] ~= why))) then
  newState = oldState
end
if newState == 'p' and why == '' and spec == '' then call('HDEL', record, 'why') end
local version = tonumber(current[2])
if newState ~= oldState or (spec ~= '' and spec ~= current[4]) or otherVersion > 0 then
  version = math.max(version, otherVersion) + 1
  call('HSET', record, 'v', version, 'st', newState)
  if spec ~= '' then call('HSET', record, 'spec', spec) end
  if pages then
    local had = call('HMGET', record, 'pages', 'left')
    call('HSET', record, 'pages', pages, 'left', math.max(0, (tonumber(had[2]) or 0) + pages - (tonumber(had[1]) or 0)))
  end
  if newState == 'r' then call('HDEL', record, 'ended', 'why') end
  if newState == 'p' and why ~= '' then call('HSET', record, 'why', why) end
  if newState == 's' or newState == 'e' or newState == 'f' then call('HSET', record, 'ended', NOW, 'why', why) end
  if newState == 'd' then
    call('HDEL', record, 'spec')
    call('UNLINK', P .. 'grants:' .. current[1], P .. 'tally:' .. current[1], P .. 'facts:' .. current[1],
      P .. 'counted:' .. current[1], P .. 'samples:' .. current[1], P .. 'hm:' .. current[1], P .. 'hh:' .. current[1])
  end
end
local after = call('HMGET', record, 'spec', 'why')
return {S.OK, current[1], version, newState, after[1] or '', after[2] or ''}
