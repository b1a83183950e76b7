-- take: visits of a host for its holder, in the crawls' turns, the highest priority of each turn first.
-- Pages are reserved here: from the crawl's page budget in this shard (al) and from its pages per host (`hp:<crawl>`:
-- <host> stored, !<host> in flight). A visit that stores no page returns its reservation (unreserve).

local function pagesLeft(c, key, host)
  local stored = tonumber(call('HGET', P .. 'hp:' .. key, host)) or 0
  local leased = tonumber(call('HGET', P .. 'hp:' .. key, '!' .. host)) or 0
  return c.ph - stored - leased, stored
end

local function unreserve(key, c, host, stored)
  if c.mp and not stored then
    bump(key, 'al', 1)
    if c.dry then
      put(key, 'dry', nil)
      call('HDEL', P .. 'c:' .. key, 'dry')
      changes[key].dry = nil
      call('ZREM', P .. 'dry', key)
      call('SADD', P .. 'unparking', key)
    end
  end
  if c.ph > 0 then
    call('HINCRBY', P .. 'hp:' .. key, '!' .. host, -1)
    if stored then call('HINCRBY', P .. 'hp:' .. key, host, 1) end
    if not ended(c) and call('EXISTS', queue(key, top(key, c, host), host)) == 1 then
      call('SREM', P .. 'parked:' .. key, host)
      enlist(key, host)
    end
  end
end

-- Set aside an excluded visit that a higher limit of its host would allow, in the format of the list of failed visits.
local MOST_DROPPED = 10000
local function setAsideVisit(key, host, prio, entry, why)
  local list = P .. 'dropped:' .. key
  if call('LLEN', list) < MOST_DROPPED then
    call('RPUSH', list, prio .. ':' .. host .. ' ' .. why .. '\n' .. entry)
  end
end

local function leave(v, i)
  call('ZREM', P .. 'w:' .. v.host, v.crawls[i].key)
  table.remove(v.crawls, i)
end

-- Up to `most` visits as {crawl, priority, entry}, for a worker that has these spiders.
local function take(v, most, spiders)
  local host, taken = v.host, {}
  local shared = #v.crawls > 1
  local moved = {}
  while #taken < most do
    local i
    for j, candidate in ipairs(v.crawls) do
      local best = i and v.crawls[i]
      -- Among crawls with the same turn, e.g. those that have just come, the one with the higher priority goes first.
      if spiders[candidate.copy.sp] and (not best or candidate.pass < best.pass
        or (candidate.pass == best.pass and candidate.copy.pr > best.copy.pr)) then i = j end
    end
    if not i then break end
    local hostCrawl = v.crawls[i]
    local key, c = hostCrawl.key, hostCrawl.copy
    local want = shared and 1 or most - #taken
    local stored
    if c.mp then want = math.min(want, c.al) end
    if want <= 0 then
      put(key, 'dry', 1)
      call('ZADD', P .. 'dry', NOW, key)
      call('SADD', P .. 'parked:' .. key, host)
      leave(v, i)
    else
      if c.ph > 0 then
        local left
        left, stored = pagesLeft(c, key, host)
        want = math.min(want, left)
      end
      if want <= 0 then
        if stored >= c.ph then
          for _, l in ipairs(lists(key, c, host)) do
            for _, entry in ipairs(call('LRANGE', l[2], 0, 999)) do setAsideVisit(key, host, l[1], entry, 'pages per host') end
          end
          local dropped = unlist(key, c, host)
          bump(key, 'w', -dropped)
          bump(key, 'x', dropped)
          reason(key, 'excluded:pages per host', dropped)
        end
        if stored < c.ph then call('SADD', P .. 'parked:' .. key, host) end
        leave(v, i)
      else
        -- view() has read the crawl's highest priority; the visits taken here may be the last of that priority.
        local prio = hostCrawl.best or top(key, c, host)
        hostCrawl.best = nil
        local entries = call(c.ord == 'l' and 'RPOP' or 'LPOP', queue(key, prio, host), want) or {}
        for _, entry in ipairs(entries) do taken[#taken + 1] = {key, prio, entry} end
        bump(key, 'w', -#entries)
        bump(key, 'l', #entries)
        if c.mp then bump(key, 'al', -#entries) end
        if c.ph > 0 then call('HINCRBY', P .. 'hp:' .. key, '!' .. host, #entries) end
        if shared then
          hostCrawl.pass = hostCrawl.pass + #entries * 2 ^ -c.pr
          moved[key] = hostCrawl.pass
        end
        if spent(key, c, host, prio) then
          moved[key] = nil
          leave(v, i)
        end
      end
    end
  end
  for key, pass in pairs(moved) do call('ZADD', P .. 'w:' .. host, 'XX', pass, key) end
  return taken
end

-- Ms that a host takes for these visits and for those that wait in its lists; 0 if its pace is 0.
local function ahead(v, visits)
  local pace = (v.delay + (v.h.m or 0)) / v.slots
  if pace == 0 then return 0 end
  for _, hostCrawl in ipairs(v.crawls) do
    local key, c = hostCrawl.key, hostCrawl.copy
    for _, l in ipairs(hostCrawl.only and {{hostCrawl.only, queue(key, hostCrawl.only, v.host)}}
      or lists(key, c, v.host)) do
      visits = visits + call('LLEN', l[2])
    end
  end
  return math.floor(visits * pace)
end
