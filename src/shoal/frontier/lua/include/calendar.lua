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

local function readRates(key, host)
  local hosts_ = ratesOf[key]
  if not hosts_ then
    hosts_ = {}
    ratesOf[key] = hosts_
  end
  local r = hosts_[host]
  if not r then
    local text_ = call('HGET', P .. 'rates:' .. key, host)
    r = {free = 0, number = 0, text = text_ or ''}
    if text_ then
      local free, number_ = string.match(text_, '^(%d+) (%d+)')
      r.free, r.number = tonumber(free) or 0, tonumber(number_) or 0
    end
    hosts_[host] = r
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
  for key, hosts_ in pairs(ratesOf) do
    local c = crawl(key)
    for host, r in pairs(hosts_) do
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

-- What stands for a host in the calendar, and back.
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

-- A script has at most 200 local variables at a time.
local plan, savePlans, lower, replan, slot, openBuckets
do
  local byte, sub = string.byte, string.sub
  -- What a call computes once and not for each page: priorities, the flags of entries with a new history, and the width
  -- 2 ^ exponent of buckets that are due in `least` ms or more, but less than `most` ms.
  local lowered, raised, flagged = {}, {}, {}
  local exponent, width, least, most_ = 0, 1, 0, 128

  -- Write a page into the bucket of its due time, when savePlans is called.
  local function enter(key, due, reserved, member)
    local plans = planned[key]
    if not plans then
      plans = {pages = 0, [true] = {}, [false] = {}}
      planned[key] = plans
    end
    plans.pages = plans.pages + 1
    local ms = due - NOW
    if ms < least or ms >= most_ then
      local _, power = math.frexp(math.max(1, ms / 64))
      exponent, width = power - 1, 2 ^ (power - 1)
      least, most_ = exponent > 0 and width * 64 or -BIG, width * 128
    end
    -- The number of the bucket, and its exponent, which is less than 64.
    local id = (due - due % width) / width * 64 + exponent
    local buckets = plans[reserved]
    local members = buckets[id]
    if members then
      members[#members + 1] = member
    else
      buckets[id] = {member}
    end
  end

  -- Put a page into the calendar. `prio` is its own priority; savePlans writes it.
  function plan(key, host, prio, entry, due, reserved)
    enter(key, due, reserved or false, nameOf(key, host) .. (prio == '0' and '' or prio) .. entry)
  end

  function savePlans()
    local scores = {}
    for key, plans in pairs(planned) do
      bump(key, 'sc', plans.pages)
      for _, reserved in ipairs({true, false}) do
        for id, members in pairs(plans[reserved]) do
          local exponent_ = id % 64
          local number_ = (id - exponent_) / 64
          -- An integer is written faster than a float, but has only 32 bits on some systems.
          local form = number_ < 2147483648 and '%s:%d.%d%s' or '%s:%d.%.0f%s'
          local bucket = string.format(form, key, exponent_, number_, reserved and 'r' or '')
          local list, start = P .. 'due:' .. bucket, number_ * 2 ^ exponent_
          local held = 0
          for i = 1, #members, 1000 do held = call('RPUSH', list, unpack(members, i, math.min(i + 999, #members))) end
          -- A bucket that has pages is in the calendar. One whose time has come may have been postponed there.
          if held == #members or start <= NOW then
            scores[#scores + 1] = start
            scores[#scores + 1] = bucket
          end
        end
      end
    end
    for i = 1, #scores, 1000 do
      call('ZADD', P .. 'calendar', unpack(scores, i, math.min(i + 999, #scores)))
    end
  end

  -- The priority of the queue in which a revisit waits, and back.
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

  -- Put the page of a leased visit, whose entry begins at `from`, into the calendar with this history instead of its own,
  -- and without attempts. Returns the flags that it had.
  function replan(key, host, prio, packed, from, history, due)
    local flags, rate = byte(packed, from, from + 1)
    local rest, new = from + 1, byte(history)
    if flags % 8 >= 4 then
      rest = from + 4
      rate = byte(packed, rest)
    end
    if flags < 128 then
      countRate(key, host, (new - new % STEPS) / STEPS, 1)
    else
      rest, rate = rest + HISTORY, rate or 0
      prio = raised[prio] or raise(prio)
      if rate - rate % STEPS ~= new - new % STEPS then
        countRate(key, host, (rate - rate % STEPS) / STEPS, -1)
        countRate(key, host, (new - new % STEPS) / STEPS, 1)
      end
    end
    local first = flagged[flags]
    if not first then
      first = string.char(bit.bor(bit.band(flags, 251), 128))
      flagged[flags] = first
    end
    local r = readRates(key, host)
    local name = r.name or nameOf(key, host)
    enter(key, due, false, name .. (prio == '0' and '' or prio) .. first .. history .. sub(packed, rest))
    return flags
  end

  -- Ms between two revisits of a host, by the budget of the crawl.
  local function slotMs(c, host)
    if c.bn > 0 then return c.bn end
    if c.bp == 0 then return 0 end
    local h = state(host)
    return (math.max(h.d or c.d, h.cd or 0, h.ad or 0) + (h.m or 0)) * 1000 / c.bp
  end

  -- The slot of a revisit that is due now: true, or the ms at which it has one.
  function slot(c, key, host)
    local ms = slotMs(c, host)
    if ms == 0 then return true end
    local r = readRates(key, host)
    local free = math.max(r.free, NOW)
    r.free = free + ms
    r.changed = true
    return free <= NOW + RESERVE_MS or free
  end

  -- Move visits that are due to the queues of their hosts, at most `most`. Returns how many buckets it looked into.
  function openBuckets(most)
    local buckets = call('ZRANGEBYSCORE', P .. 'calendar', '-inf', NOW, 'LIMIT', 0, 10)
    local opened, gone = {}, {}
    for _, bucket in ipairs(buckets) do
      if most <= 0 then break end
      local list = P .. 'due:' .. bucket
      local key, reserved = string.match(bucket, '^(%w+):[%-%d.]+(r?)$')
      local c = key and crawl(key)
      if not c or c.ev == 0 or (ended(c) and not c.kp) then
        -- The copy counts none of them any more.
        call('UNLINK', list)
        gone[#gone + 1] = bucket
      elseif ended(c) then
        -- It may continue under a higher limit.
        call('ZADD', P .. 'calendar', NOW + 3600000, bucket)
      else
        local members = call('LPOP', list, most) or {}
        if #members < most or call('EXISTS', list) == 0 then gone[#gone + 1] = bucket end
        most = most - #members
        bump(key, 'sc', -#members)
        local queues = opened[key]
        if not queues then
          queues = {}
          opened[key] = queues
        end
        local limited = reserved == '' and c.bn + c.bp > 0
        for i = 1, #members do
          local member = members[i]
          local space = string.find(member, ' ', 1, true)
          local prio, start, of = '0', space + 1, sub(member, 1, space)
          -- The first byte of an entry with a history is above 127.
          if byte(member, start) < 128 then
            prio, start = string.match(member, '^(%-?%d+)()', start)
            of = of .. prio
          end
          local q = queues[of]
          if not q then
            q = {host = hostOf(key, sub(member, 1, space - 1)), prio = prio, entries = {}}
            queues[of] = q
          end
          local entry, host = sub(member, start), q.host
          local moment = not limited or slot(c, key, host)
          if moment == true then
            local entries = q.entries
            entries[#entries + 1] = entry
          else
            plan(key, host, prio, entry, moment, true)
          end
        end
      end
    end
    if #gone > 0 then call('ZREM', P .. 'calendar', unpack(gone)) end
    for key, queues in pairs(opened) do
      local c = crawl(key)
      local moved = 0
      for _, q in pairs(queues) do
        if #q.entries > 0 then
          moved = moved + #q.entries
          -- Where revisits of this priority wait already, the crawl is with its host, or parked.
          if push(key, c, q.host, lower(q.prio), q.entries, false) then
            local _, alone = enlist(key, q.host)
            arm(q.host, alone)
          end
        end
      end
      bump(key, 'a', moved)
      bump(key, 'w', moved)
    end
    return #buckets
  end
end
