-- sync: bring a shard's copy of a crawl to a version.
-- ARGV    1 now | 2 crawl | 3 version | 4 state | 5 why | 6 mode (c create the copy if there is none, u only if there
--         is one, x the same, and finished only if nothing is open here) | then field, value, ...
-- Reply   OK, version here, state here ('' if there is no copy)  or  RUNNING: visits are open here, it is not finished
-- Keeps   an older version changes nothing. A shard without visits of an ended crawl gets no copy of it
--include shard open crawls

local key = text(16, CRAWL)
local version = number(1, BIG)
local st = text(1, '^[rpsef]$')
local why = text(64, '^[^%c]*$')
local mode = text(1, '^[cux]$')
local KNOWN = {id = '^[%w_.:@-]+$', sp = '^[%w_.:-]*$', pr = '^%-?%d+$', ord = '^[fl]$', d = '^%d+$', n = '^%d+$',
  md = '^%d*$', mp = '^1?$', ph = '^%d+$', pd = '^%d+$', exp = '^%d+$', life = '^%d+$', ev = '^%d+$', bp = '^%d+$', bn = '^%d+$'}
local fields, absent = {}, {}
while not wrong and at < #ARGV do
  local field = text(8)
  if not KNOWN[field] then wrong = 'field ' .. field break end
  local value = text(128, KNOWN[field])
  if value == '' and field ~= 'sp' then
    absent[#absent + 1] = field
  else
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
end
if wrong then return {S.INVALID, wrong} end

local c = crawl(key)
if not c then
  if mode ~= 'c' or (st ~= 'r' and st ~= 'p') then return {S.OK, version, ''} end
  call('HSET', P .. 'c:' .. key, 'gn', 1, 'gs', NOW, 'v', version, 'st', st, unpack(fields))
  copies[key] = nil
  c = crawl(key)
elseif c.v < version then
  call('DEL', P .. '-')
  if mode == 'x' and st == 'f' and c.a ~= c.s + c.f + c.x then return {S.RUNNING} end
  local before = c.st
  for i = 1, #fields, 2 do put(key, fields[i], tonumber(c[fields[i]]) and tonumber(fields[i + 1]) or fields[i + 1]) end
  for _, field in ipairs(absent) do
    if c[field] then
      c[field] = nil
      call('HDEL', P .. 'c:' .. key, field)
    end
  end
  put(key, 'v', version)
  put(key, 'st', st)
  if c.kp and (st == 'r' or st == 'p') then takeUp(key) end
  if st == 'r' and before ~= 'r' then
    if c.dry then
      c.dry = nil
      call('HDEL', P .. 'c:' .. key, 'dry')
    end
    call('SADD', P .. 'unparking', key)
  elseif st ~= 'r' and st ~= 'p' then
    finish(key, st, why)
  end
end
if c.exp > 0 and not ended(c) then call('ZADD', P .. 'expiring', c.exp, key) else call('ZREM', P .. 'expiring', key) end
local here = c.v
save()
wake()
return {S.OK, here, c.st}
