-- touch: record signals that pages of a perpetual crawl have changed. `lease` pulls their visits forward (signals.lua).
-- ARGV    1 now | 2 crawl | 3 kind (t touch, s sitemap, f feed, i IndexNow) | then for each page: host, fingerprint
--         (signed decimal), scheme and path as in its entry, s since 1970 when it changed (0 = no date)
-- Reply   OK, one letter per page: p recorded, n the crawl does not know it, i ignored because such signals of the host were
--         rarely right, f too many signals wait here, o the crawl visits its pages once
--         UNKNOWN: this shard has had no visit of the crawl. ENDED, state
-- Keeps   a repeated call changes only the time of the signal; the calendar itself is not changed
-- Cost    O(pages), at most 250
--include shard open crawls seen queues hosts calendar signals

local key = text(16, CRAWL)
local kind = text(1, '^[tsfi]$')
local pages = {}
while not wrong and at < #ARGV do
  local host, fingerprint = text(260, HOST), text(20, '^%-?%d+$')
  pages[#pages + 1] = {host = host, fingerprint = fingerprint, path = text(ENTRY, '^[0-3]'), since = number(0, BIG)}
  if #pages > 250 then wrong = 'pages' end
end
if wrong then return {S.INVALID, wrong} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end
if ended(c) then save() return {S.ENDED, c.st} end

local function known(fingerprint)
  if c.on > 0 and call('SISMEMBER', seenSet(key, c.g - 1, c.on, level(c.on), fingerprint), fingerprint) == 1 then
    return true
  end
  return call('SISMEMBER', seenSet(key, c.g, c.gn, level(c.gn), fingerprint), fingerprint) == 1
end

-- Whether signals of this kind are so rarely right that this one is ignored.
local byHost = {}
local function useless(host)
  if kind == 't' then return false end
  local kinds = byHost[host]
  if not kinds then
    kinds = readSignals(key, host)
    byHost[host] = kinds
  end
  local n = kinds[kind]
  if not n or n[1] < TRIALS or n[2] * PRECISION >= n[1] then return false end
  n[3] = (n[3] + 1) % TRIALS
  kinds.changed = true
  return n[3] ~= 0
end

local result, noted = {}, false
for i, page in ipairs(pages) do
  local letter = 'p'
  if not known(page.fingerprint) then
    letter = 'n'
  elseif c.ev == 0 then
    letter = 'o'
  elseif useless(page.host) then
    letter = 'i'
  elseif c.tn >= MOST_TOUCHED and call('HEXISTS', P .. 'touched:' .. key, page.host .. ' ' .. page.path) == 0 then
    letter = 'f'
    -- A search drops old signals.
    noted = true
  else
    bump(key, 'tn', call('HSET', P .. 'touched:' .. key, page.host .. ' ' .. page.path,
      string.format('%s %.0f %.0f', kind, NOW, page.since)))
    noted = true
  end
  result[i] = letter
end
for host, kinds in pairs(byHost) do
  if kinds.changed then saveSignals(key, host, kinds) end
end
if noted then
  call('SADD', P .. 'touching', key)
  put(key, 'ta', 1)
  wake()
end
save()
return {S.OK, table.concat(result)}
