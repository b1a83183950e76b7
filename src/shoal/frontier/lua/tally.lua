-- tally: statistics of a crawl, at its home shard.
-- ARGV    1 now | 2 id | then name, count, ... to be added
-- Reply   OK, name, total, ...  or  UNKNOWN
-- Keeps   at most 64 names: a call that would exceed this is refused as a whole. A deleted crawl has none
--         a repeated call counts twice: the statistics are for people, and no decision depends on them
--include shard open

local id = text(128, '^[%w_.:@-]+$')
local names, counts = {}, {}
while not wrong and at < #ARGV do
  local name = text(80, '^[%w_.:-]+$')
  if not counts[name] then names[#names + 1] = name end
  counts[name] = (counts[name] or 0) + number(0, BIG)
end
if wrong then return {S.INVALID, wrong} end

local record = call('HMGET', P .. 'crawl:' .. id, 'key', 'st')
if not record[1] then return {S.UNKNOWN} end
if record[2] == 'd' then return {S.OK} end
local tally = P .. 'tally:' .. record[1]
local flat, totals, known, fresh = call('HGETALL', tally), {}, 0, false
for i = 1, #flat, 2 do
  totals[flat[i]] = tonumber(string.match(flat[i + 1], '^%d+$')) or 0
  known = known + 1
end
for _, name in ipairs(names) do
  if not totals[name] then
    totals[name] = 0
    known = known + 1
    fresh = true
  end
  totals[name] = math.min(totals[name] + counts[name], BIG)
end
if #names > 0 then
  if fresh and known > 64 then return {S.INVALID, 'more than 64 names'} end
  call('DEL', P .. '-')
  for _, name in ipairs(names) do call('HSET', tally, name, totals[name]) end
end
local reply = {S.OK}
for name, total in pairs(totals) do
  reply[#reply + 1] = name
  reply[#reply + 1] = total
end
return reply
