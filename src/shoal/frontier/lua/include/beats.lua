-- beats: live workers. `beats` worker -> time of its last heartbeat, `infos` worker -> its report, `nonowners` workers
-- that own no shards; all at the store's own key, not in a shard. A worker without a heartbeat for 30 s counts as
-- gone. So does a worker whose heartbeat is in the future because the server's clock was set back: its next heartbeat
-- adds it again.
local SILENT = 30000
local MOST_WORKERS = 10000

local function live()
  return call('ZRANGEBYSCORE', P .. 'beats', NOW - SILENT, NOW + SILENT, 'WITHSCORES')
end

local function drop(names)
  if #names == 0 then return end
  call('ZREM', P .. 'beats', unpack(names))
  call('HDEL', P .. 'infos', unpack(names))
  call('SREM', P .. 'nonowners', unpack(names))
end

-- Drop workers that count as gone, at most 100 of each kind per call.
local function dropSilent()
  drop(call('ZRANGEBYSCORE', P .. 'beats', '-inf', '(' .. NOW - SILENT, 'LIMIT', 0, 100))
  drop(call('ZRANGEBYSCORE', P .. 'beats', '(' .. NOW + SILENT, '+inf', 'LIMIT', 0, 100))
end
