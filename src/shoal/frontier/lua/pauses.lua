-- pauses: what a crawl waits for in this shard: hosts that are paused after failures, and URLs to retry later.
-- ARGV    1 now | 2 crawl | 3 spider
-- Reply   OK, now, then per host: host, 1 = it is paused, reason, until ms, URLs to retry
-- Keeps   writes nothing. It reads the 20 hosts of each class that are ready last and the first 200 visits that are
--         due later, of all crawls: a crowded shard may have more
--include shard

local key = text(16, CRAWL)
local spider = text(64, '^[%w_.:-]*$')
if wrong then return {S.INVALID, wrong} end

local reply = {S.OK, NOW}
local rows = {}
local function addRow(host, paused, until_)
  local known = call('HMGET', P .. 'h:' .. host, 'b', 'br')
  local pause = tonumber(known[1]) or 0
  if paused and pause <= NOW then return nil end
  local row = {host, pause > NOW and 1 or 0, known[2] or '', pause > NOW and pause or until_, 0}
  rows[host] = row
  return row
end

for rank = 0, 2 do
  local lane = P .. 'ready:' .. rank .. ':' .. spider
  for _, host in ipairs(call('ZRANGE', lane, '+inf', '(' .. NOW, 'BYSCORE', 'REV', 'LIMIT', 0, 20)) do
    if not rows[host] and call('ZSCORE', P .. 'w:' .. host, key) then addRow(host, true) end
  end
end
local due = call('ZRANGE', P .. 'later', '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, 200, 'WITHSCORES')
for i = 1, #due, 2 do
  local owner, host = string.match(due[i], '^(%w+):%-?%d+:(%S+) ')
  if owner == key then
    local row = rows[host] or addRow(host, false, tonumber(due[i + 1]))
    row[5] = row[5] + 1
  end
end
for _, row in pairs(rows) do
  for i = 1, 5 do reply[#reply + 1] = row[i] end
end
return reply
