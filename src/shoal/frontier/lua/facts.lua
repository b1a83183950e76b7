-- facts: facts of a crawl, at its home shard. Decisions depend on them; statistics are in tally.
-- ARGV    1 now | 2 id | then name, value, ... to record
-- Reply   OK, name, value, ...  or  UNKNOWN
-- Keeps   a fact only grows: the greater value stays. If the first fact of a call does not grow, nothing is written, so a
--         repeated call changes nothing
--         at most 1000 names: a call that would exceed this is refused as a whole. A deleted crawl has no facts
--         Shoal 0.1 stored facts among the statistics of a crawl: they are read from there too
--include shard open facts

local id = text(128, '^[%w_.:@-]+$')
local names, values = {}, {}
while not wrong and at < #ARGV do
  local name = text(280, FACT)
  if not values[name] then names[#names + 1] = name end
  values[name] = number(0, BIG)
end
if wrong then return {S.INVALID, wrong} end

local record = call('HMGET', P .. 'crawl:' .. id, 'key', 'st')
if not record[1] then return {S.UNKNOWN} end
if record[2] == 'd' then return {S.OK} end
local known, stored = facts(record[1])
if #names > 0 and values[names[1]] > (known[names[1]] or -1) then
  local new = 0
  for _, name in ipairs(names) do
    if not known[name] then new = new + 1 end
  end
  if new > 0 and stored + new > 1000 then return {S.INVALID, 'more than 1000 facts'} end
  call('DEL', P .. '-')
  for _, name in ipairs(names) do
    known[name] = math.max(known[name] or 0, values[name])
    call('HSET', P .. 'facts:' .. record[1], name, known[name])
  end
end
local reply = {S.OK}
for name, value in pairs(known) do
  reply[#reply + 1] = name
  reply[#reply + 1] = value
end
return reply
