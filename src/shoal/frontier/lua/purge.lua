-- purge: delete the data of an ended crawl in this shard, a bounded part per call.
-- ARGV    1 now | 2 crawl | 3 stage | 4 rank
-- Reply   OK, next stage, next rank; stage 'done' when nothing is left
-- Keeps   a list that is missed, because hosts move during the search, is unlinked when a lease finds it
-- Cost    O(500)
--include shard open crawls queues hosts

local key = text(16, CRAWL)
local stage = text(8, '^%l+$')
local rank = number(0, BIG)
if wrong then return {S.INVALID, wrong} end
local c = crawl(key)
if not c then return {S.OK, 'done', 0} end
if not ended(c) then return {S.RUNNING} end

call('DEL', P .. '-')
local most = 200
if stage == 'ready' then
  local hostsRead = 0
  for class = 0, 2 do
    local hosts = call('ZRANGE', P .. 'ready:' .. class .. ':' .. c.sp, rank, rank + most - 1)
    hostsRead = math.max(hostsRead, #hosts)
    for _, host in ipairs(hosts) do
      if call('ZSCORE', P .. 'w:' .. host, key) then unlist(key, c, host) end
    end
  end
  if hostsRead == most then return {S.OK, 'ready', rank + most} end
  return {S.OK, 'parked', 0}
elseif stage == 'parked' then
  local hosts = call('SPOP', P .. 'parked:' .. key, most)
  for _, host in ipairs(hosts) do unlist(key, c, host) end
  if #hosts == most then return {S.OK, 'parked', 0} end
  return {S.OK, 'later', 0}
elseif stage == 'later' then
  local members = call('ZRANGE', P .. 'later', rank, rank + most - 1)
  local mine = {}
  for _, member in ipairs(members) do
    if string.sub(member, 1, #key + 1) == key .. ':' then mine[#mine + 1] = member end
  end
  if #mine > 0 then call('ZREM', P .. 'later', unpack(mine)) end
  if #members == most then return {S.OK, 'later', rank + most - #mine} end
  return {S.OK, 'calendar', 0}
elseif stage == 'calendar' then
  local buckets = call('ZRANGE', P .. 'calendar', rank, rank + most - 1)
  local mine, names = {}, {}
  for _, bucket in ipairs(buckets) do
    if string.sub(bucket, 1, #key + 1) == key .. ':' then
      mine[#mine + 1] = bucket
      names[#names + 1] = P .. 'due:' .. bucket
    end
  end
  if #mine > 0 then
    call('UNLINK', unpack(names))
    call('ZREM', P .. 'calendar', unpack(mine))
  end
  if #buckets == most then return {S.OK, 'calendar', rank + most - #mine} end
  return {S.OK, 'valid', 0}
elseif stage == 'valid' then
  local names = {}
  for number = rank, math.min(c.vn, rank + most) - 1 do names[#names + 1] = P .. 'v:' .. key .. ':' .. number end
  if #names > 0 then call('UNLINK', unpack(names)) end
  if c.vn > rank + most then return {S.OK, 'valid', rank + most} end
  return {S.OK, 'failed', 0}
elseif stage == 'failed' then
  local last = tonumber(call('HGET', P .. 'fi:' .. key, 'n')) or 0
  local names = {}
  for number = rank + 1, math.min(last, rank + most) do names[#names + 1] = P .. 'fq:' .. key .. ':' .. number end
  if #names > 0 then call('UNLINK', unpack(names)) end
  if last > rank + most then return {S.OK, 'failed', rank + most} end
  call('UNLINK', P .. 'fi:' .. key, P .. 'failed:' .. key, P .. 'reasons:' .. key, P .. 'hp:' .. key,
    P .. 'dropped:' .. key, P .. 'over:' .. key, P .. 'jars:' .. key, P .. 'rates:' .. key,
    P .. 'names:' .. key, P .. 'touched:' .. key, P .. 'pulled:' .. key, P .. 'signals:' .. key)
  call('RPUSH', P .. 'trash', key .. ':' .. c.g .. ':' .. c.gn)
  if c.on > 0 then call('RPUSH', P .. 'trash', key .. ':' .. (c.g - 1) .. ':' .. c.on) end
  call('ZREM', P .. 'expiring', key)
  call('ZREM', P .. 'dry', key)
  call('SREM', P .. 'unparking', key)
  call('SREM', P .. 'touching', key)
  call('UNLINK', P .. 'c:' .. key)
  return {S.OK, 'done', 0}
end
return {S.INVALID, 'stage'}
