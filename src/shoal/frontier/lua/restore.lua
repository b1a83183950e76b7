-- restore: write one line of a dump into this shard. Only for a namespace that no worker uses yet.
-- ARGV    1 now | 2 number of the line for this shard | 3 kind | then by kind:
--         crawl   id, state, created ms, ended ms, why, pages left
--         copy    crawl, version, state, stored, failed, excluded, then field, value, ... (as sync) and '' and reason, count, ...
--         waiting crawl, host, priority, entries ...; front: the same, to be taken next
--         later   crawl, host, priority, due ms, entry
--         failed  crawl, host, priority, why, entries ...
--         due     crawl, host, priority, due ms, entries ... of the calendar
--         seen    crawl, fingerprints ...
--         valid   crawl, then field, value, ... as they stand in its hashes of validators
--         jar     crawl, name, jar as it stands in its hash
--         pages   crawl, host, pages stored
--         tally   id, then name, total, ...; facts: the same
--         host    host, then field, value, ...
--         seed    seed of fingerprints
-- Reply   OK
-- Keeps   a line whose number was already written changes nothing: a lost reply costs nothing
-- Cost    O(the line), at most 250 entries
--include shard crawls seen validators queues hosts calendar

local number_ = number(1, BIG)
local kind = text(8, '^%l+$')
if wrong then return {S.INVALID, wrong} end
if (tonumber(call('HGET', KEYS[1], 'restored')) or 0) >= number_ then return {S.OK} end

local function remaining(limit, pattern)
  local all = {}
  while not wrong and at < #ARGV do all[#all + 1] = text(limit, pattern) end
  return all
end

if kind == 'crawl' then
  local id = text(128, '^[%w_.:@-]+$')
  local state_ = text(1, '^[rpsefd]$')
  local created, finished = number(0, BIG), number(0, BIG)
  local why = text(64)
  local left = number(0, BIG)
  if wrong then return {S.INVALID, wrong} end
  call('HSET', P .. 'crawl:' .. id, 'st', state_, 'created', created, 'left', left)
  if finished > 0 then call('HSET', P .. 'crawl:' .. id, 'ended', finished, 'why', why) end
  call('ZADD', P .. 'crawls', created, id)
elseif kind == 'seed' then
  local seed = text(20, '^%d+$')
  if wrong then return {S.INVALID, wrong} end
  call('HSET', KEYS[1], 'seed', seed)
elseif kind == 'tally' or kind == 'facts' then
  local id = text(128, '^[%w_.:@-]+$')
  local totals = {}
  while not wrong and at < #ARGV do
    totals[#totals + 1] = kind == 'tally' and text(80, '^[%w_.:-]+$') or text(280, '^[^%s%c]+$')
    totals[#totals + 1] = number(0, BIG)
  end
  if wrong or #totals == 0 or #totals > (kind == 'tally' and 128 or 2000) then return {S.INVALID, wrong or 'totals'} end
  local key = call('HGET', P .. 'crawl:' .. id, 'key')
  if not key then return {S.UNKNOWN} end
  call('HSET', P .. kind .. ':' .. key, unpack(totals))
elseif kind == 'host' then
  local host = text(260, HOST)
  local fields = remaining(128)
  if wrong or #fields % 2 == 1 then return {S.INVALID, wrong or 'fields'} end
  if #fields > 0 then call('HSET', P .. 'h:' .. host, unpack(fields)) end
  if state(host).x then
    call('HINCRBY', KEYS[1], 'blocked', 1)
    call('SADD', P .. 'blocked', host)
  end
  arm(host)
else
  local key = text(16, CRAWL)
  if kind == 'copy' then
    local version = number(1, BIG)
    local args = {'v', version, 'st', text(1, '^[rpsef]$'), 'gn', 1, 'gs', NOW}
    local finalCounts = {s = number(0, BIG), f = number(0, BIG), x = number(0, BIG)}
    local pairs_ = remaining(128)
    if wrong then return {S.INVALID, wrong} end
    local i = 1
    while pairs_[i] and pairs_[i] ~= '' do
      args[#args + 1] = pairs_[i]
      args[#args + 1] = pairs_[i + 1] or ''
      i = i + 2
    end
    call('HSET', P .. 'c:' .. key, unpack(args))
    for j = i + 1, #pairs_ - 1, 2 do call('HINCRBY', P .. 'reasons:' .. key, pairs_[j], pairs_[j + 1]) end
    local c = crawl(key)
    put(key, 'a', finalCounts.s + finalCounts.f + finalCounts.x)
    for f, n in pairs(finalCounts) do put(key, f, n) end
    if c.exp > 0 and not ended(c) then call('ZADD', P .. 'expiring', c.exp, key) end
  else
    local c = crawl(key)
    if not c then return {S.UNKNOWN} end
    if kind == 'seen' then
      local fingerprints = remaining(20, '^%-?%d+$')
      if wrong then return {S.INVALID, wrong} end
      local new = 0
      for _, fingerprint in ipairs(fingerprints) do
        if remember(key, c, level(c.gn), fingerprint) then new = new + 1 end
      end
      put(key, 'gc', c.gc + new)
      while c.gc > c.gn * LOAD do split(key, c) end
    elseif kind == 'valid' then
      local fields = {}
      while not wrong and at < #ARGV do fields[#fields + 1] = {text(24, '^%-?%d+%.?%d*$'), text(PIECE)} end
      if wrong or #fields > 250 then return {S.INVALID, wrong or 'fields'} end
      for _, pair in ipairs(fields) do writeValidator(key, c, string.match(pair[1], '^%-?%d+'), pair) end
      growValidators(key, c)
    else
      local host = text(260, HOST)
      if kind == 'pages' then
        local stored = number(0, BIG)
        if wrong then return {S.INVALID, wrong} end
        call('HSET', P .. 'hp:' .. key, host, stored)
      elseif kind == 'jar' then
        local jar = text(65600, '^%d+\n')
        if wrong then return {S.INVALID, wrong} end
        call('HSET', P .. 'jars:' .. key, host, jar)
      else
        local prio = text(17, PRIORITY)
        if kind == 'waiting' or kind == 'front' then
          local entries = remaining(ENTRY)
          if wrong or #entries == 0 or #entries > 250 then return {S.INVALID, wrong or 'entries'} end
          for _, entry in ipairs(entries) do countRate(key, host, rateClass(entry), 1) end
          push(key, c, host, prio, entries, kind == 'front')
          bump(key, 'a', #entries)
          bump(key, 'w', #entries)
          enlist(key, host)
          arm(host)
        elseif kind == 'later' then
          local due = number(0, BIG)
          local entry = text(ENTRY)
          if wrong then return {S.INVALID, wrong} end
          countRate(key, host, rateClass(entry), 1)
          bump(key, 'a', 1)
          bump(key, 't', 1)
          call('ZADD', P .. 'later', due, key .. ':' .. prio .. ':' .. host .. ' ' .. entry)
        elseif kind == 'due' then
          local due = number(0, BIG)
          local entries = remaining(ENTRY)
          if wrong or #entries == 0 or #entries > 250 then return {S.INVALID, wrong or 'entries'} end
          for _, entry in ipairs(entries) do
            if not historyAt(entry) then return {S.INVALID, 'history'} end
          end
          for _, entry in ipairs(entries) do
            countRate(key, host, rateClass(entry), 1)
            plan(key, host, prio, entry, math.max(due, NOW))
          end
        elseif kind == 'failed' then
          local why = text(64)
          local entries = remaining(ENTRY)
          if wrong then return {S.INVALID, wrong} end
          for _, entry in ipairs(entries) do
            countRate(key, host, rateClass(entry), 1)
            call('RPUSH', P .. 'failed:' .. key, prio .. ':' .. host .. ' ' .. why .. '\n' .. entry)
          end
        else
          return {S.INVALID, 'kind'}
        end
      end
    end
  end
end
savePlans()
saveRates()
save()
call('HSET', KEYS[1], 'restored', number_)
return {S.OK}
