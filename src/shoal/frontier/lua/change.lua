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
local wanted = text(1, '^[rpsefd]$')
local why = text(64, '^[^%c]*$')
local spec = text(1048576)
local pages = numberOr(nil, 0, BIG)
local elsewhere = number(0, BIG)
if wrong then return {S.INVALID, wrong} end

call('DEL', P .. '-')
local record = P .. 'crawl:' .. id
local now = call('HMGET', record, 'key', 'v', 'st', 'spec', 'why')
if not now[1] then return {S.UNKNOWN} end
local from = now[3]
local open = from == 'r' or from == 'p'
if from == 'd' and wanted ~= 'd' then return {S.ENDED, from} end
if not open and wanted ~= from and wanted ~= 'd' and not (from == 'f' and wanted == 'r' and (now[5] == 'finished' or spec ~= '')) then return {S.ENDED, from} end
if open and wanted == 'd' then return {S.RUNNING} end
if why ~= '' and ((wanted == 'p' and from == 'p') or (wanted == 'r' and (from ~= 'p' or now[5] ~= why))) then wanted = from end
if wanted == 'p' and why == '' and spec == '' then call('HDEL', record, 'why') end
local version = tonumber(now[2])
if wanted ~= from or (spec ~= '' and spec ~= now[4]) or elsewhere > 0 then
  version = math.max(version, elsewhere) + 1
  call('HSET', record, 'v', version, 'st', wanted)
  if spec ~= '' then call('HSET', record, 'spec', spec) end
  if pages then
    local had = call('HMGET', record, 'pages', 'left')
    call('HSET', record, 'pages', pages, 'left', math.max(0, (tonumber(had[2]) or 0) + pages - (tonumber(had[1]) or 0)))
  end
  if wanted == 'r' then call('HDEL', record, 'ended', 'why') end
  if wanted == 'p' and why ~= '' then call('HSET', record, 'why', why) end
  if wanted == 's' or wanted == 'e' or wanted == 'f' then call('HSET', record, 'ended', NOW, 'why', why) end
  if wanted == 'd' then
    call('HDEL', record, 'spec')
    call('UNLINK', P .. 'grants:' .. now[1], P .. 'tally:' .. now[1], P .. 'facts:' .. now[1], P .. 'counted:' .. now[1],
      P .. 'samples:' .. now[1], P .. 'hm:' .. now[1], P .. 'hh:' .. now[1])
  end
end
local after = call('HMGET', record, 'spec', 'why')
return {S.OK, now[1], version, wanted, after[1] or '', after[2] or ''}
