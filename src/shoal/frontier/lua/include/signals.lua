-- signals: hints that a page of a perpetual crawl has changed. They pull its visit forward, never back.
-- `touched:<crawl>` '<host> <scheme><path>' -> '<kind> <ms> <s>': the kind (t touch, s sitemap, f feed, i IndexNow), when
-- the signal came, and since when the page is reported as changed (0 = no date). The bucket of a page is not known, so
-- `lease` searches the calendar for all of them at once, a part per call. `touching` lists the crawls that are searched; tc
-- of the copy is the position of the search, '<due> <index> <bucket>', ta 1 = it starts once more. `acknowledge` finds a
-- page that is being visited.
-- `pulled:<crawl>` page -> kind, until that visit ends. `signals:<crawl>` host -> '<kind> <pulled> <changed> <ignored> ...':
-- how often such visits found a change, in about the last 100. tn and pn of the copy count `touched` and `pulled`.
local MOST_TOUCHED, MOST_PULLED = 2000, 10000
-- If the search did not find the page of a signal, the signal waits this long for a visit that is under way.
local UNFOUND_MS = 600000
-- If fewer than one visit in 10 found a change, after 20 visits, a kind is ignored for the host, except for one signal
-- in 20.
local TRIALS, PRECISION, MEMORY = 20, 10, 100

-- The name of an entry's page: host, scheme and path. Nil for methods other than GET.
local function pageOf(host, entry)
  local flags = string.byte(entry, 1)
  local from = 2 + (bit.band(flags, 4) ~= 0 and 3 or 0) + (flags >= 128 and HISTORY or 0)
  while (string.byte(entry, from) or 0) >= 128 do from = from + 1 end
  from = from + 1
  if bit.band(flags, 8) ~= 0 then
    local length, unit = 0, 1
    repeat
      local byte = string.byte(entry, from) or 0
      length = length + byte % 128 * unit
      unit = unit * 128
      from = from + 1
    until byte < 128
    if string.sub(entry, from, from + 4) ~= '\148\163GET' then return nil end
    from = from + length
  end
  return host .. ' ' .. bit.band(flags, 3) .. string.sub(entry, from)
end

local function readSignals(key, host)
  local kinds = {}
  local field = call('HGET', P .. 'signals:' .. key, host)
  for kind, pulled, changed, ignored in string.gmatch(field or '', '(%l) (%d+) (%d+) (%d+)') do
    kinds[kind] = {tonumber(pulled), tonumber(changed), tonumber(ignored)}
  end
  return kinds
end

local function saveSignals(key, host, kinds)
  local parts = {}
  for _, kind in ipairs({'t', 's', 'f', 'i'}) do
    local n = kinds[kind]
    if n then parts[#parts + 1] = string.format('%s %.0f %.0f %.0f', kind, n[1], n[2], n[3]) end
  end
  call('HSET', P .. 'signals:' .. key, host, table.concat(parts, ' '))
end

local function countSignal(key, host, kind, changed)
  local kinds = readSignals(key, host)
  local n = kinds[kind] or {0, 0, 0}
  n[1], n[2] = n[1] + 1, n[2] + (changed and 1 or 0)
  if n[1] > MEMORY then n[1], n[2] = math.floor(n[1] / 2), math.floor(n[2] / 2) end
  kinds[kind] = n
  saveSignals(key, host, kinds)
end

local function untouch(key, page)
  call('HDEL', P .. 'touched:' .. key, page)
  bump(key, 'tn', -1)
end

local function notePulled(key, page, kind)
  local c = crawl(key)
  if c.pn >= MOST_PULLED then
    -- Only the counts of these signals are lost.
    call('UNLINK', P .. 'pulled:' .. key)
    put(key, 'pn', 0)
  end
  bump(key, 'pn', call('HSET', P .. 'pulled:' .. key, page, kind))
end

-- A visit has ended: count whether the signal that led to it was right. Returns true if a signal came since its lease
-- began, so that the page is visited once more. `history`: the new history, '' = the page has left the crawl.
local function settle(key, c, host, entry, history, start)
  local page = pageOf(host, entry)
  if not page then return false end
  local kind = c.pn > 0 and call('HGET', P .. 'pulled:' .. key, page)
  if kind then
    call('HDEL', P .. 'pulled:' .. key, page)
    bump(key, 'pn', -1)
    local from = historyAt(entry)
    local changed = history == '' or not from or string.byte(history, 2) >= 64
      or string.sub(history, 19, 23) ~= string.sub(entry, from + 18, from + 22)
    countSignal(key, host, kind, changed)
  end
  local value = c.tn > 0 and call('HGET', P .. 'touched:' .. key, page)
  if not value then return false end
  untouch(key, page)
  local newKind, ms, since = string.match(value, '^(%l) (%d+) (%d+)$')
  if history == '' or tonumber(ms) < start then return false end
  if tonumber(since) > 0 then
    local a, b, c_, d = string.byte(history, 15, 18)
    if tonumber(since) <= ((a * 256 + b) * 256 + c_) * 256 + d then return false end
  end
  notePulled(key, page, newKind)
  return true
end

-- Pull forward a page that the search has found, unless the signal is older than the last visit, or the page has its
-- slot in the budget already. It gets the next slot, which is not later than the slot it would get when it is due.
-- After a touch, the page is visited at once, and the share of the budget that it uses is missing later.
-- Returns whether the page leaves its bucket.
local function pull(key, c, host, prio, entry, bucket, kind, since)
  local reserved = string.sub(bucket, -1) == 'r'
  local from = historyAt(entry)
  if since > 0 and from then
    local a, b, c_, d = string.byte(entry, from + 14, from + 17)
    if since <= ((a * 256 + b) * 256 + c_) * 256 + d then return false end
  end
  local slotTime = true
  if kind ~= 't' and reserved then return false end
  if not reserved then slotTime = slot(c, key, host) end
  bump(key, 'sc', -1)
  if slotTime == true or kind == 't' then
    local rose = push(key, c, host, lower(prio), {entry}, true)
    bump(key, 'a', 1)
    bump(key, 'w', 1)
    local came, alone = enlist(key, host)
    if came or rose then arm(host, alone) end
  else
    plan(key, host, prio, entry, slotTime, true)
  end
  return true
end

-- Search one bucket from `index` on, at most `most` pages. Returns how many were read, and the index after them.
local function searchBucket(key, c, bucket, index, most, signals, hosts, hostByName)
  local list = P .. 'due:' .. bucket
  local members = call('LRANGE', list, index, index + most - 1)
  local pulled = 0
  for _, member in ipairs(members) do
    local name, prio, start = string.match(member, '^(%S+) (%-?%d*)()')
    if hostByName[name] == nil then hostByName[name] = hostOf(key, name) or false end
    local host = hostByName[name]
    if host and hosts[host] then
      local entry = string.sub(member, start)
      local page = pageOf(host, entry)
      local signal = page and signals[page]
      if signal then
        signals[page] = nil
        untouch(key, page)
        if pull(key, c, host, prio == '' and '0' or prio, entry, bucket, signal.kind, signal.since) then
          call('LREM', list, 1, member)
          notePulled(key, page, signal.kind)
          pulled = pulled + 1
        end
      end
    end
  end
  if pulled > 0 and call('EXISTS', list) == 0 then call('ZREM', P .. 'calendar', bucket) end
  return #members, index + #members - pulled
end

-- Search the calendar for pages with signals, at most `most` pages and buckets.
-- Returns whether there is more to search.
local function search(most)
  local key = call('SRANDMEMBER', P .. 'touching')
  if not key then return false end
  local c = crawl(key)
  if not c or ended(c) or c.tn == 0 then
    call('SREM', P .. 'touching', key)
    if c and c.tc then put(key, 'tc', '') end
    return call('EXISTS', P .. 'touching') == 1
  end
  local signals, hosts, hostByName = {}, {}, {}
  local flat = call('HGETALL', P .. 'touched:' .. key)
  for i = 1, #flat, 2 do
    local kind, ms, since = string.match(flat[i + 1], '^(%l) (%d+) (%d+)$')
    signals[flat[i]] = {kind = kind, ms = tonumber(ms), since = tonumber(since)}
    hosts[string.match(flat[i], '^%S+')] = true
  end
  local due, index, bucket = string.match(c.tc or '', '^(%-?%d+) (%d+) (%S+)$')
  local rank, prefix = 0, key .. ':'
  if bucket then
    -- A bucket that is no longer there was opened: the search continues at its time.
    rank = tonumber(call('ZRANK', P .. 'calendar', bucket) or call('ZCOUNT', P .. 'calendar', '-inf', '(' .. due))
  else
    put(key, 'ta', 0)
  end
  index = tonumber(index) or 0
  local position = ''
  while most > 0 do
    local pair = call('ZRANGE', P .. 'calendar', rank, rank, 'WITHSCORES')
    if not pair[1] then
      position = nil
      break
    end
    most = most - 1
    if pair[1] ~= bucket then bucket, index = pair[1], 0 end
    position = string.format('%.0f %.0f %s', tonumber(pair[2]), index, bucket)
    if string.sub(bucket, 1, #prefix) ~= prefix then
      rank = rank + 1
    else
      local limit = math.max(1, most)
      local read, nextIndex = searchBucket(key, c, bucket, index, limit, signals, hosts, hostByName)
      most, index = most - read, nextIndex
      position = string.format('%.0f %.0f %s', tonumber(pair[2]), index, bucket)
      if read < limit and call('ZSCORE', P .. 'calendar', bucket) then rank = rank + 1 end
    end
  end
  if position then
    put(key, 'tc', position)
    return true
  end
  put(key, 'tc', '')
  if c.ta > 0 then return true end
  for page, signal in pairs(signals) do
    if NOW - signal.ms > UNFOUND_MS then untouch(key, page) end
  end
  call('SREM', P .. 'touching', key)
  return call('EXISTS', P .. 'touching') == 1
end
