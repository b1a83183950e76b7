-- calendar: pages of perpetual crawls by the time of their next visit, about 75 bytes a page.
-- `due:<crawl>:<bucket>` lists '<host> [<priority>]<entry>', with '#<number>' for a host of many pages; `calendar` has '<crawl>:<bucket>' by due time. A bucket is as
-- wide as a 64th of the time until it is due at most (a power of two), so a crawl has some hundreds of them, and
-- no page is late by its bucket. An 'r' ends the name of a bucket whose visits have their slots in the budget already.
-- An entry whose flags have bit 7 carries a history of 23 bytes behind its attempts; its first byte is the rate.
-- `rates:<crawl>` host -> '<free> <number> <class>:<pages> ...': when the next revisit has a slot, its number in
-- `names:<crawl>` (0 = none), and the pages by rate class.
-- Every entry with a history is counted there, wherever it is. Of the copy: sc pages in the calendar, ev shortest
-- interval ms (0 = visited once), bp share of the host's requests in 1/1000 and bn ms a revisit, 0 = no such budget.
local HISTORY, STEPS = 23, 4
-- Revisits wait in a queue of this much lower priority: new pages go first.
local LOWER = 1000000000000
local RESERVE_MS = 1000
-- From so many pages on, a number for the host takes less memory than its name in each of them.
local NUMBERED = 16
local planned, ratesOf, hostsOf = {}, {}, {}

local function historyAt(entry)
  local flags = string.byte(entry, 1)
  if flags < 128 then return nil end
  return bit.band(flags, 4) ~= 0 and 5 or 2
end

local function rateClass(entry)
  local from = historyAt(entry)
  return from and math.floor((string.byte(entry, from) or 0) / STEPS)
end

-- The entry with this history instead of its own, and without attempts.
local function renewed(entry, history)
  local flags = string.byte(entry, 1)
  local from = historyAt(entry)
  local rest = string.sub(entry, (bit.band(flags, 4) ~= 0 and 5 or 2) + (from and HISTORY or 0))
  return string.char(bit.bor(bit.band(flags, 251), 128)) .. history .. rest
end

local function readRates(key, host)
  local name = key .. ' ' .. host
  local r = ratesOf[name]
  if not r then
    local text_ = call('HGET', P .. 'rates:' .. key, host)
    r = {key = key, host = host, free = 0, number = 0, text = text_ or ''}
    if text_ then
      local free, number_ = string.match(text_, '^(%d+) (%d+)')
      r.free, r.number = tonumber(free) or 0, tonumber(number_) or 0
    end
    ratesOf[name] = r
  end
  return r
end

-- The same with its pages by class: most calls need only the number of the host.
local function readClasses(key, host)
  local r = readRates(key, host)
  if not r.classes then
    r.pages, r.classes = 0, {}
    for class_, pages in string.gmatch(r.text, ' (%d+):(%d+)') do
      r.classes[tonumber(class_)] = tonumber(pages)
      r.pages = r.pages + tonumber(pages)
    end
  end
  return r
end

local function countRate(key, host, class_, by)
  if not class_ or by == 0 then return end
  local r = readClasses(key, host)
  r.classes[class_] = (r.classes[class_] or 0) + by
  r.pages = r.pages + by
  r.changed = true
end

-- A page that leaves the crawl.
local function uncount(key, host, entry)
  countRate(key, host, rateClass(entry), -1)
end

local function saveRates()
  for _, r in pairs(ratesOf) do
    local c = crawl(r.key)
    if r.changed and c and (not ended(c) or c.kp) then
      readClasses(r.key, r.host)
      local parts = {string.format('%.0f %.0f', r.free, r.number)}
      for class_ = 0, 63 do
        if (r.classes[class_] or 0) > 0 then parts[#parts + 1] = class_ .. ':' .. r.classes[class_] end
      end
      if #parts > 1 then
        call('HSET', P .. 'rates:' .. r.key, r.host, table.concat(parts, ' '))
      else
        call('HDEL', P .. 'rates:' .. r.key, r.host)
        if r.number > 0 then call('HDEL', P .. 'names:' .. r.key, r.number) end
      end
    end
  end
end

-- What stands for a host in the calendar, and back.
local function nameOf(key, host)
  local r = readRates(key, host)
  if r.number == 0 and readClasses(key, host).pages >= NUMBERED then
    r.number = call('HINCRBY', P .. 'names:' .. key, 'n', 1)
    call('HSET', P .. 'names:' .. key, r.number, host)
    r.changed = true
  end
  return r.number > 0 and '#' .. r.number or host
end

local function hostOf(key, name)
  if string.sub(name, 1, 1) ~= '#' then return name end
  local known = hostsOf[key .. name]
  if not known then
    known = call('HGET', P .. 'names:' .. key, string.sub(name, 2))
    hostsOf[key .. name] = known
  end
  return known
end

-- Put a page into the calendar. `prio` is its own priority; savePlans writes it.
local function plan(key, host, prio, entry, due, reserved)
  local _, exponent = math.frexp(math.max(1, (due - NOW) / 64))
  local width = 2 ^ (exponent - 1)
  local number_ = math.floor(due / width)
  local name = (exponent - 1) .. '.' .. string.format('%.0f', number_) .. (reserved and 'r' or '')
  local bucket = key .. ':' .. name
  local p = planned[bucket]
  if not p then
    p = {due = number_ * width}
    planned[bucket] = p
  end
  p[#p + 1] = nameOf(key, host) .. ' ' .. (prio == '0' and '' or prio) .. entry
  bump(key, 'sc', 1)
end

local function savePlans()
  local buckets = {}
  for bucket, p in pairs(planned) do
    for i = 1, #p, 1000 do call('RPUSH', P .. 'due:' .. bucket, unpack(p, i, math.min(i + 999, #p))) end
    buckets[#buckets + 1] = p.due
    buckets[#buckets + 1] = bucket
  end
  for i = 1, #buckets, 1000 do
    call('ZADD', P .. 'calendar', unpack(buckets, i, math.min(i + 999, #buckets)))
  end
  return #buckets > 0
end

-- The priority of the queue in which a revisit waits, and back.
local function lower(prio) return string.format('%.0f', tonumber(prio) - LOWER) end
local function raise(prio) return string.format('%.0f', tonumber(prio) + LOWER) end

-- Ms between two revisits of a host, by the budget of the crawl.
local function slotMs(c, host)
  if c.bn > 0 then return c.bn end
  if c.bp == 0 then return 0 end
  local h = state(host)
  return (math.max(h.d or c.d, h.cd or 0, h.ad or 0) + (h.m or 0)) * 1000 / c.bp
end

-- The slot of a revisit that is due now: true, or the ms at which it has one.
local function slot(c, key, host)
  local ms = slotMs(c, host)
  if ms == 0 then return true end
  local r = readRates(key, host)
  local free = math.max(r.free, NOW)
  r.free = free + ms
  r.changed = true
  return free <= NOW + RESERVE_MS or free
end

-- Move visits that are due to the queues of their hosts, at most `most`. Returns how many buckets it looked into.
local function openBuckets(most)
  local buckets = call('ZRANGEBYSCORE', P .. 'calendar', '-inf', NOW, 'LIMIT', 0, 10)
  for _, bucket in ipairs(buckets) do
    if most <= 0 then break end
    local list = P .. 'due:' .. bucket
    local key, reserved = string.match(bucket, '^(%w+):[%-%d.]+(r?)$')
    local c = key and crawl(key)
    if not c or c.ev == 0 or (ended(c) and not c.kp) then
      -- The copy counts none of them any more.
      call('UNLINK', list)
      call('ZREM', P .. 'calendar', bucket)
    elseif ended(c) then
      -- It may continue under a higher limit.
      call('ZADD', P .. 'calendar', NOW + 3600000, bucket)
    else
      local members = call('LPOP', list, most) or {}
      most = most - #members
      local queues = {}
      for _, member in ipairs(members) do
        local name, prio, start = string.match(member, '^(%S+) (%-?%d*)()')
        local host = hostOf(key, name)
        local entry = string.sub(member, start)
        if prio == '' then prio = '0' end
        bump(key, 'sc', -1)
        local moment = reserved == 'r' or slot(c, key, host)
        if moment == true then
          local queue_ = host .. ' ' .. prio
          local q = queues[queue_]
          if not q then
            q = {host = host, prio = prio, entries = {}}
            queues[queue_] = q
            queues[#queues + 1] = q
          end
          q.entries[#q.entries + 1] = entry
        else
          plan(key, host, prio, entry, moment, true)
        end
      end
      for _, q in ipairs(queues) do
        local rose = push(key, c, q.host, lower(q.prio), q.entries, false)
        bump(key, 'a', #q.entries)
        bump(key, 'w', #q.entries)
        local came, alone = enlist(key, q.host)
        if came or rose then arm(q.host, alone) end
      end
      if call('EXISTS', list) == 0 then call('ZREM', P .. 'calendar', bucket) end
    end
  end
  return #buckets
end
