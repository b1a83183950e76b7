-- calendar: pages of perpetual crawls by the time of their next visit, about 75 bytes per page.
-- `due:<crawl>:<bucket>` lists '<host> [<priority>]<entry>', with '#<number>' for a host with many pages.
-- `calendar` has '<crawl>:<bucket>' by due time. A bucket is at most as wide as a 64th of the time until it is due (a
-- power of two), so a crawl has some hundreds of them, and no page is late because of its bucket. An 'r' ends the name of
-- a bucket whose visits already have their slots in the budget.
-- An entry whose flags have bit 7 has a history of 23 bytes after its attempts; its first byte is the rate.
-- `rates:<crawl>` host -> '<free> <number> <class>:<pages> ...': when the next revisit has a slot, its number in
-- `names:<crawl>` (0 = none), and the pages by rate class.
-- Every entry with a history is counted in `rates`, wherever the entry is.
-- Fields of the copy: sc pages in the calendar, ev shortest interval ms (0 = visited once), bp share of the host's
-- requests in 1/1000 and bn ms per revisit, 0 = no such budget.
local HISTORY, STEPS = 23, 4
-- The priority of a revisit's queue is lower by this number, so that new pages go first.
local LOWER = 1000000000000
local RESERVE_MS = 1000
-- From this number of pages on, the host's number in each of them takes less memory than its name.
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

-- The hosts of this call. Their rates are read together, because a command costs more than a field.
local callHosts = {}

local function noteRates(ratesByHost, host, text_)
  local r = {free = 0, number = 0, text = text_ or ''}
  if text_ then
    local free, number_ = string.match(text_, '^(%d+) (%d+)')
    r.free, r.number = tonumber(free) or 0, tonumber(number_) or 0
  end
  ratesByHost[host] = r
  return r
end

local function readRates(key, host)
  local ratesByHost = ratesOf[key]
  if not ratesByHost then
    ratesByHost = {}
    ratesOf[key] = ratesByHost
    if #callHosts > 1 and #callHosts <= 1000 then
      local texts = call('HMGET', P .. 'rates:' .. key, unpack(callHosts))
      for i, name in ipairs(callHosts) do noteRates(ratesByHost, name, texts[i]) end
    end
  end
  return ratesByHost[host] or noteRates(ratesByHost, host, call('HGET', P .. 'rates:' .. key, host))
end

-- The rates of a host with its pages by class; most calls need only the number of the host.
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

-- Remove a page that leaves the crawl from the counts.
local function uncount(key, host, entry)
  countRate(key, host, rateClass(entry), -1)
end

local function saveRates()
  for key, ratesByHost in pairs(ratesOf) do
    local c = crawl(key)
    for host, r in pairs(ratesByHost) do
      if r.changed and c and (not ended(c) or c.kp) then
        readClasses(key, host)
        local parts = {string.format('%.0f %.0f', r.free, r.number)}
        for class_ = 0, 63 do
          if (r.classes[class_] or 0) > 0 then parts[#parts + 1] = class_ .. ':' .. r.classes[class_] end
        end
        if #parts > 1 then
          call('HSET', P .. 'rates:' .. key, host, table.concat(parts, ' '))
        else
          call('HDEL', P .. 'rates:' .. key, host)
          if r.number > 0 then call('HDEL', P .. 'names:' .. key, r.number) end
        end
      end
    end
  end
end

-- The name of a host in the calendar, followed by a blank. hostOf is the inverse, without the blank.
local function nameOf(key, host)
  local r = readRates(key, host)
  if not r.name then
    if r.number == 0 and readClasses(key, host).pages >= NUMBERED then
      r.number = call('HINCRBY', P .. 'names:' .. key, 'n', 1)
      call('HSET', P .. 'names:' .. key, r.number, host)
      r.changed = true
    end
    if r.number == 0 then return host .. ' ' end
    r.name = '#' .. r.number .. ' '
  end
  return r.name
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

-- The helpers of these functions are local to a block: a script has at most 200 local variables at a time.
local plan, savePlans, lower, replan, slot, openBuckets
do
  local byte, sub = string.byte, string.sub
  -- Values that a call computes once and not for each page: priorities, the flags of entries with a new history, and
  -- the width 2 ^ exponent of buckets that are due in `least` ms or more, but less than `most_` ms. At first, it is the
  -- width for a day.
  local lowered, raised, flagged = {}, {}, {}
  -- The host and crawl of the previous page, and the rates of that host.
  local previousHost, previousKey, previousRates
  local exponent, width, least, most_ = 20, 1048576, 67108864, 134217728

  -- Add a page to the bucket of its due time; savePlans writes it.
  local function enter(key, due, reserved, member)
    local plans = planned[key]
    if not plans then
      plans = {[true] = {}, [false] = {}}
      planned[key] = plans
    end
    local ms = due - NOW
    -- Step by step from the width for the previous page: pages of a call differ by a step or two.
    while ms >= most_ do
      exponent, width = exponent + 1, width * 2
      least, most_ = most_, most_ * 2
    end
    while ms < least do
      exponent, width = exponent - 1, width / 2
      least, most_ = exponent > 0 and least / 2 or -BIG, least
    end
    -- The number of the bucket times 64, plus its exponent, which is less than 64.
    local id = (due - due % width) / width * 64 + exponent
    local buckets = plans[reserved]
    local members = buckets[id]
    if members then
      members[#members + 1] = member
    else
      buckets[id] = {member}
    end
  end

  -- Put a page into the calendar; savePlans writes it. `prio` is the page's own priority, not that of its queue.
  function plan(key, host, prio, entry, due, reserved)
    enter(key, due, reserved or false, nameOf(key, host) .. (prio == '0' and '' or prio) .. entry)
  end

  function savePlans()
    local scores = {}
    for key, plans in pairs(planned) do
      local pages = 0
      for _, reserved in ipairs({true, false}) do
        for id, members in pairs(plans[reserved]) do
          local exponent_ = id % 64
          local number_ = (id - exponent_) / 64
          -- An integer is written faster than a float, but has only 32 bits on some systems.
          local template = number_ < 2147483648 and '%s:%d.%d%s' or '%s:%d.%.0f%s'
          local bucket = string.format(template, key, exponent_, number_, reserved and 'r' or '')
          local list, start = P .. 'due:' .. bucket, number_ * 2 ^ exponent_
          local length = 0
          pages = pages + #members
          for i = 1, #members, 1000 do length = call('RPUSH', list, unpack(members, i, math.min(i + 999, #members))) end
          -- A bucket that had pages is in the calendar already. If it is due, it may have been postponed there.
          if length == #members or start <= NOW then
            scores[#scores + 1] = start
            scores[#scores + 1] = bucket
          end
        end
      end
      bump(key, 'sc', pages)
    end
    for i = 1, #scores, 1000 do
      call('ZADD', P .. 'calendar', unpack(scores, i, math.min(i + 999, #scores)))
    end
  end

  -- The priority of the queue in which a revisit waits. raise is the inverse.
  function lower(prio)
    local p = lowered[prio]
    if not p then
      p = string.format('%.0f', tonumber(prio) - LOWER)
      lowered[prio] = p
    end
    return p
  end

  local function raise(prio)
    local p = raised[prio]
    if not p then
      p = string.format('%.0f', tonumber(prio) + LOWER)
      raised[prio] = p
    end
    return p
  end

  -- Put the page of a leased visit, whose entry begins at `from`, into the calendar with a new history and without
  -- attempts. Returns the flags that the entry had.
  function replan(key, host, prio, packed, from, history, due)
    local flags, rate = byte(packed, from, from + 1)
    local restStart, newRate = from + 1, byte(history)
    if flags % 8 >= 4 then
      restStart = from + 4
      rate = byte(packed, restStart)
    end
    if flags < 128 then
      countRate(key, host, (newRate - newRate % STEPS) / STEPS, 1)
    else
      restStart, rate = restStart + HISTORY, rate or 0
      prio = raised[prio] or raise(prio)
      if rate - rate % STEPS ~= newRate - newRate % STEPS then
        countRate(key, host, (rate - rate % STEPS) / STEPS, -1)
        countRate(key, host, (newRate - newRate % STEPS) / STEPS, 1)
      end
    end
    local newFlags = flagged[flags]
    if not newFlags then
      newFlags = string.char(bit.bor(bit.band(flags, 251), 128))
      flagged[flags] = newFlags
    end
    if host ~= previousHost or key ~= previousKey then
      previousHost, previousKey, previousRates = host, key, readRates(key, host)
    end
    local name = previousRates.name or nameOf(key, host)
    if prio == '0' then
      enter(key, due, false, name .. newFlags .. history .. sub(packed, restStart))
    else
      enter(key, due, false, name .. prio .. newFlags .. history .. sub(packed, restStart))
    end
    return flags
  end

  -- Ms between two revisits of a host, by the budget of the crawl.
  local function slotMs(c, host)
    if c.bn > 0 then return c.bn end
    if c.bp == 0 then return 0 end
    local h = state(host)
    return (math.max(h.d or c.d, h.cd or 0, h.ad or 0) + (h.m or 0)) * 1000 / c.bp
  end

  -- Take a slot in the budget for a revisit that is due now. Returns true, or the time of the slot if it is later.
  function slot(c, key, host)
    local ms = slotMs(c, host)
    if ms == 0 then return true end
    local r = readRates(key, host)
    local free = math.max(r.free, NOW)
    r.free = free + ms
    r.changed = true
    return free <= NOW + RESERVE_MS or free
  end

  -- Sort the pages of a bucket by host and priority. A group lists the entries that may be moved; its `unreserved`
  -- lists the entries that need a slot in the budget first.
  local function sortPages(c, groups, members, limited)
    for i = 1, #members do
      local member = members[i]
      -- Most members are '#<number> <entry>', and the first byte of an entry is above 127. The bytes of a short number
      -- make the key of its group, so that no string is created for it.
      local a, b, c_, d, e, f, g = byte(member, 1, 7)
      local groupKey, start, first
      if a == 35 then
        if c_ == 32 then
          groupKey, start, first = b, 4, d
        elseif d == 32 then
          groupKey, start, first = b * 256 + c_, 5, e
        elseif e == 32 then
          groupKey, start, first = b * 65536 + c_ * 256 + d, 6, f
        elseif f == 32 then
          groupKey, start, first = b * 16777216 + c_ * 65536 + d * 256 + e, 7, g
        end
      end
      local prio = '0'
      if not start or first < 128 then
        groupKey, prio, start = string.match(member, '^(%S+ (%-?%d*))()')
        if prio == '' then prio = '0' end
      end
      local group = groups[groupKey]
      if not group then
        group = {name = string.match(member, '^%S+'), prio = prio}
        if c.bn + c.bp > 0 then group.unreserved = {} end
        groups[groupKey] = group
      end
      if limited then group = group.unreserved end
      group[#group + 1] = sub(member, start)
    end
  end

  -- Set the host of each group, with one command for all hosts that have numbers.
  local function findHosts(key, groups)
    local numbers, numbered = {}, {}
    for _, group in pairs(groups) do
      if byte(group.name) == 35 then
        numbers[#numbers + 1] = sub(group.name, 2)
        numbered[#numbered + 1] = group
      else
        group.host = group.name
      end
    end
    if #numbers == 0 then return end
    local hosts_ = call('HMGET', P .. 'names:' .. key, unpack(numbers))
    for i, group in ipairs(numbered) do group.host = hosts_[i] end
  end

  -- Move at most `most` visits that are due to the queues of their hosts. Returns how many buckets were due, up to 10.
  function openBuckets(most)
    local buckets = call('ZRANGEBYSCORE', P .. 'calendar', '-inf', NOW, 'LIMIT', 0, 10)
    local opened, gone = {}, {}
    for _, bucket in ipairs(buckets) do
      if most <= 0 then break end
      local list = P .. 'due:' .. bucket
      local key, reserved = string.match(bucket, '^(%w+):[%-%d.]+(r?)$')
      local c = key and crawl(key)
      if not c or c.ev == 0 or (ended(c) and not c.kp) then
        -- The crawl's copy no longer counts these pages.
        call('UNLINK', list)
        gone[#gone + 1] = bucket
      elseif ended(c) then
        -- The crawl may continue under a higher limit.
        call('ZADD', P .. 'calendar', NOW + 3600000, bucket)
      else
        local members = call('LPOP', list, most) or {}
        if #members < most or call('EXISTS', list) == 0 then gone[#gone + 1] = bucket end
        most = most - #members
        bump(key, 'sc', -#members)
        opened[key] = opened[key] or {}
        sortPages(c, opened[key], members, reserved == '' and c.bn + c.bp > 0)
      end
    end
    if #gone > 0 then call('ZREM', P .. 'calendar', unpack(gone)) end
    for key, groups in pairs(opened) do
      local c = crawl(key)
      local moved = 0
      findHosts(key, groups)
      for _, group in pairs(groups) do
        local host, prio = group.host, group.prio
        for _, entry in ipairs(group.unreserved or {}) do
          local slotTime = slot(c, key, host)
          if slotTime == true then
            group[#group + 1] = entry
          else
            plan(key, host, prio, entry, slotTime, true)
          end
        end
        if #group > 0 then
          moved = moved + #group
          local low = lower(prio)
          -- If revisits of this priority wait already, the crawl is among those of the host, or parked.
          if call('RPUSHX', queue(key, low, host), unpack(group)) == 0 and push(key, c, host, low, group, false) then
            local _, alone = enlist(key, host)
            arm(host, alone)
          end
        end
      end
      bump(key, 'a', moved)
      bump(key, 'w', moved)
    end
    return #buckets
  end
end
