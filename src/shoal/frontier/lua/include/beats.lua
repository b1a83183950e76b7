-- beats: which workers live. `beats` worker -> when it was last heard of, `infos` worker -> what it said of itself;
-- both at the store's own key, not in a shard. A worker that was not heard of for 30 s is gone; so is one that was
-- heard of in the future, because the server's clock was set back: it will be heard of again.
local SILENT = 30000
local MOST_WORKERS = 10000

local function live()
  return call('ZRANGEBYSCORE', P .. 'beats', NOW - SILENT, NOW + SILENT, 'WITHSCORES')
end

local function drop(names)
  if #names == 0 then return end
  call('ZREM', P .. 'beats', unpack(names))
  call('HDEL', P .. 'infos', unpack(names))
end

-- At most 100 a call of each kind.
local function dropSilent()
  drop(call('ZRANGEBYSCORE', P .. 'beats', '-inf', '(' .. NOW - SILENT, 'LIMIT', 0, 100))
  drop(call('ZRANGEBYSCORE', P .. 'beats', '(' .. NOW + SILENT, '+inf', 'LIMIT', 0, 100))
end
