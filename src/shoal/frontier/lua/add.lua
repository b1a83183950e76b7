-- add: admit visits that a crawl has not seen.
-- ARGV    1 now | 2 crawl | 3 number of visits | 4 a name for a call with forced visits, else '' | then groups: host,
--         priority, depth, 1 = also if seen, visits, and for each visit: fingerprint (signed decimal), entry
-- Reply   OK, one letter per visit: n new, s seen, d too deep, h pages per host reached, l URLs per depth reached,
--         b host blocked; then the server process of the shard's epoch
-- Keeps   a visit is marked as seen and queued in one step; a visit over a limit is neither. Idempotent.
-- Refused as a whole when the store is full: its first write needs memory
-- Cost    O(visits), at most 250
--include shard open crawls seen queues hosts

local key = text(16, CRAWL)
local total = number(1, 250)
local request = text(32, '^%w*$')
local groups, visits = {}, 0
while not wrong and at < #ARGV do
  local g = {host = text(260, HOST), prio = text(17, PRIORITY), depth = number(0, BIG), force = text(1) == '1', n = number(1, 250)}
  g.from = at
  for _ = 1, wrong and 0 or g.n do
    text(20, '^%-?%d+$')
    if #text(ENTRY) < 2 then wrong = wrong or ('argument ' .. at) end
  end
  visits = visits + g.n
  groups[#groups + 1] = g
end
if not wrong and visits ~= total then wrong = 'visits' end
if wrong then return {S.INVALID, wrong} end

local earlierResult = request ~= '' and call('GET', P .. 'forced:' .. request)
if earlierResult then return {S.OK, earlierResult, META.run or ''} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end
if ended(c) then save() return {S.ENDED, c.st} end

-- Set aside URLs that exceed a limit, each once, up to 10,000 per crawl and shard.
local function setAsideUrls(key, letter, g, first, last)
  local over = P .. 'over:' .. key
  if call('SCARD', over) >= 10000 then return end
  for i = first, last, 2 do
    call('SADD', over, letter .. g.prio .. ':' .. g.host .. '\n' .. ARGV[i])
  end
end

turnGeneration(key, c)
local m, count = level(c.gn), 0
local result, armed = {}, false
for _, g in ipairs(groups) do
  local refused
  if c.md and g.depth > tonumber(c.md) then
    refused = 'd'
  elseif META.blocked and META.blocked ~= '0' and call('HEXISTS', P .. 'h:' .. g.host, 'x') == 1 then
    refused = 'b'
  elseif c.ph > 0 and (tonumber(call('HGET', P .. 'hp:' .. key, g.host)) or 0) >= c.ph then
    refused = 'h'
  end
  if refused then
    result[#result + 1] = string.rep(refused, g.n)
    if refused ~= 'b' then setAsideUrls(key, refused, g, g.from + 2, g.from + 2 * g.n) end
  else
    local fresh = {}
    -- Admitted URLs of this host at this depth; without a limit they are not counted.
    local limited = c.pd > 0 and g.depth > 0
    local field = limited and ('!@' .. g.depth .. ' ' .. g.host)
    local room = limited and c.pd - (tonumber(call('HGET', P .. 'hp:' .. key, field)) or 0)
    for i = g.from + 1, g.from + 2 * g.n, 2 do
      local full = limited and #fresh >= room and (g.force or not isSeen(key, c, m, ARGV[i]))
      local isNew = not full and remember(key, c, m, ARGV[i])
      if isNew then count = count + 1 end
      if full then
        result[#result + 1] = 'l'
        setAsideUrls(key, 'l', g, i + 1, i + 1)
      elseif isNew or g.force then
        fresh[#fresh + 1] = ARGV[i + 1]
        result[#result + 1] = 'n'
      else
        result[#result + 1] = 's'
      end
    end
    if #fresh > 0 then
      if limited then call('HINCRBY', P .. 'hp:' .. key, field, #fresh) end
      bump(key, 'a', #fresh)
      bump(key, 'w', #fresh)
      local rose = push(key, c, g.host, g.prio, fresh, false)
      local came, alone = enlist(key, g.host)
      if came or rose then armed = arm(g.host, alone) or armed end
    end
  end
end
if count > 0 then
  put(key, 'gc', c.gc + count)
  while c.gc > c.gn * LOAD do split(key, c) end
end
save()
if armed then wake() end
-- A repeated forced visit cannot be recognized by its fingerprint, so the name of its call is kept, for longer than a
-- call is repeated.
if request ~= '' then call('SET', P .. 'forced:' .. request, table.concat(result), 'PX', 180000) end
return {S.OK, table.concat(result), META.run or ''}
