-- crawls: the shard's copies of crawls, read once per call and written back once by save().
-- Fields   v version, st state (r running, p paused, s stopped, e expired, f finished), sp spider, pr priority,
--          ord (f first in first out, l last in first out), d delay ms, n slots, md depth limit, mp 1 = pages are
--          limited, ph pages per host, pd URLs of a host per depth, exp end ms, life dedup lifetime ms, up 1 = priorities
--          other than 0 are used
-- Counts   a admitted = w waiting + l leased + t later + s stored + f failed + x excluded, at every script boundary
-- Corr.    rf failed visits that were retried, rx excluded ones that were admitted again, rs stored ones that were visited
--          again: a counts them twice, so subtract these numbers to count them once
-- Kept     kp the limit that ended the crawl: visits that were waiting (kw) or due later (kt) are kept for a higher limit
-- Budget   al pages that may still be leased here, rc total received and rt total returned (both only grow)
-- Calendar sc pages in it, ev shortest interval ms, bp and bn the budget (calendar.lua)
-- Signals  tn and pn how many there are, tc and ta the search for them (signals.lua)
-- Valid.   vn hashes of validators, vc their fields
-- Seen     g generation, gn its sets, gc its members, gs its start ms; on the sets of the previous generation
-- Types    text, or nil if missing: TEXTS. All others are numbers, and 0 if missing: a copy lacks most of them
local TEXTS = {st = 1, id = 1, sp = 1, ord = 1, md = 1, mp = 1, up = 1, dry = 1, kp = 1, tc = 1}
local MISSING = {__index = function(_, field) if not TEXTS[field] then return 0 end end}
local MOST_REASONS = 200
-- URLs that a limit set aside, per crawl and shard; beyond this they are not kept.
local MOST_KEPT = 100000
local copies, changes, reasons = {}, {}, {}

local function put(key, field, value)
  copies[key][field] = value
  local fields = changes[key]
  if not fields then fields = {} changes[key] = fields end
  fields[field] = true
end

local function bump(key, field, by)
  local copy, fields = copies[key], changes[key]
  copy[field] = copy[field] + by
  if not fields then fields = {} changes[key] = fields end
  fields[field] = true
end

local function reason(key, why, by)
  local r = reasons[key]
  if not r then r = {} reasons[key] = r end
  r[why] = (r[why] or 0) + by
end

-- End a crawl. Its visits that wait or are due later count as excluded. Their lists are unlinked when a lease finds
-- them; the lists of a crawl that has reached a limit are parked, so that the crawl can continue under a higher limit.
local function finish(key, state, why)
  local c = copies[key]
  local left = c.w + c.t
  if state == 'f' and why ~= 'finished' and left <= MOST_KEPT then
    put(key, 'kp', why)
    put(key, 'kw', c.w)
    put(key, 'kt', c.t)
  end
  if left > 0 then
    bump(key, 'x', left)
    put(key, 'w', 0)
    put(key, 't', 0)
    reason(key, 'excluded:' .. why, left)
  end
  put(key, 'st', state)
  call('ZREM', P .. 'expiring', key)
  call('ZREM', P .. 'dry', key)
  if not c.kp then
    call('SADD', P .. 'unparking', key)
    if c.sc > 0 then put(key, 'sc', 0) end
    if c.ev > 0 then
      call('UNLINK', P .. 'rates:' .. key, P .. 'names:' .. key, P .. 'touched:' .. key, P .. 'pulled:' .. key, P .. 'signals:' .. key)
      if c.tn + c.pn > 0 then
        put(key, 'tn', 0)
        put(key, 'pn', 0)
      end
    end
  end
end

-- Continue a crawl under a higher limit: its kept visits are admitted again.
local function takeUp(key)
  local c = copies[key]
  local kept = c.kw + c.kt
  if kept > 0 then
    bump(key, 'a', kept)
    bump(key, 'rx', kept)
    bump(key, 'w', c.kw)
    bump(key, 't', c.kt)
    reason(key, 'readmitted:' .. c.kp, kept)
  end
  put(key, 'kw', 0)
  put(key, 'kt', 0)
  call('HDEL', P .. 'c:' .. key, 'kp')
  c.kp = nil
  changes[key].kp = nil
end

local function ended(c)
  return c.st == 's' or c.st == 'e' or c.st == 'f'
end

local function crawl(key)
  local c = copies[key]
  if c == nil then
    local flat = call('HGETALL', P .. 'c:' .. key)
    if #flat == 0 then
      copies[key] = false
      return false
    end
    c = setmetatable({}, MISSING)
    for i = 1, #flat, 2 do
      local f, value = flat[i], flat[i + 1]
      c[f] = TEXTS[f] and value or tonumber(value) or 0
    end
    copies[key] = c
    if c.exp > 0 and c.exp <= NOW and not ended(c) then finish(key, 'e', 'expired') end
  end
  return c
end

local function save()
  for key, fields in pairs(changes) do
    local args = {}
    for f in pairs(fields) do
      args[#args + 1] = f
      args[#args + 1] = copies[key][f]
    end
    call('HSET', P .. 'c:' .. key, unpack(args))
  end
  for key, counts in pairs(reasons) do
    local r = P .. 'reasons:' .. key
    for why, by in pairs(counts) do
      if call('HLEN', r) >= MOST_REASONS and call('HEXISTS', r, why) == 0 then
        why = string.match(why, '^%a+') .. ':other'
      end
      call('HINCRBY', r, why, by)
    end
  end
end
