-- erase: remove the record of a deleted crawl, so that its id is free again. Its final counts are added to the shard's sum.
-- ARGV    1 now | 2 id
-- Reply   OK  or  UNKNOWN  or  RUNNING: it is not deleted
-- Keeps   record and sum change together: totals over all crawls do not fall
-- Frees memory first, so that it runs when the store is full
--include shard open

local id = text(128, '^[%w_.:@-]+$')
if wrong then return {S.INVALID, wrong} end

local record = P .. 'crawl:' .. id
local crawl = call('HMGET', record, 'key', 'st', 'freed')
if not crawl[1] then return {S.UNKNOWN} end
if crawl[2] ~= 'd' then return {S.RUNNING} end
call('DEL', P .. '-')

local function decoded(text)
  local good, counts = pcall(cjson.decode, text or '{}')
  return good and type(counts) == 'table' and counts or {}
end
local sum, ended = decoded(call('HGET', KEYS[1], 'erased')), decoded(crawl[3])
local function add(to, from, name, as)
  local count = tonumber(from[name])
  if count then to[as or name] = (tonumber(to[as or name]) or 0) + count end
end
for _, name in ipairs({'stored', 'failed', 'excluded'}) do add(sum, ended, name) end
if type(ended.reasons) == 'table' then
  local reasons = type(sum.reasons) == 'table' and sum.reasons or {}
  local known = 0
  for _ in pairs(reasons) do known = known + 1 end
  for reason in pairs(ended.reasons) do
    reason = tostring(reason)
    if reasons[reason] or known < 1000 then
      if not reasons[reason] then known = known + 1 end
      add(reasons, ended.reasons, reason)
    else
      add(reasons, ended.reasons, reason, (string.match(reason, '^[^:]*')) .. ':other')
    end
  end
  if next(reasons) then sum.reasons = reasons end
end
call('HSET', KEYS[1], 'erased', cjson.encode(sum))
call('UNLINK', record)
call('HDEL', P .. 'keys', crawl[1])
call('ZREM', P .. 'crawls', id)
return {S.OK}
