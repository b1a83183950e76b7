-- retry: admit failed visits of a crawl again, as new visits; or visits that a limit of their host excluded.
-- ARGV    1 now | 2 crawl | 3 '' at first, then the list in the reply | 4 f failed, x excluded | 5.. none for all of them,
--         or some of one list of failed visits: its number (0 = the list that grows), then per visit: index, line
-- Reply   OK, how many, 1 = there are more, the last list to retry (visits that fail meanwhile are not retried)
--         for some: OK, how many, 0, 0; a line that is not at its index is skipped
-- Keeps   a back-off that followed from failures ends here; one that the server requested stays
--         f, x and a only grow: a retry is a new admission, and rf or rx counts how many of f or x were admitted again
-- Cost    at most 100 visits
--include shard open crawls queues hosts calendar

local key = text(16, CRAWL)
local lastList = numberOr(nil, 0, BIG)
local kind = text(1, '^[fx]$')
local chosen = at < #ARGV and {list = number(0, BIG)}
while chosen and not wrong and at < #ARGV do chosen[#chosen + 1] = {index = number(0, BIG), line = text(ENTRY + 1024)} end
if chosen and (#chosen < 1 or #chosen > 100 or kind ~= 'f') then wrong = wrong or 'visits' end
if wrong then return {S.INVALID, wrong} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end
if ended(c) then return {S.ENDED, c.st} end

call('DEL', P .. '-')
local fi = P .. 'fi:' .. key
lastList = lastList or tonumber(call('HGET', fi, 'n')) or 0
local function admit(host, prio, entries, why)
  bump(key, 'r' .. kind, #entries)
  reason(key, (kind == 'f' and 'retried:' or 'readmitted:') .. why, #entries)
  for i, entry in ipairs(entries) do
    -- A new admission starts with no retries, expiries or blames.
    local flags = string.byte(entry, 1)
    if kind == 'x' then countRate(key, host, rateClass(entry), 1) end
    if bit.band(flags, 4) ~= 0 then entries[i] = string.char(flags - 4) .. string.sub(entry, 5) end
  end
  push(key, c, host, prio, entries, false)
  bump(key, 'a', #entries)
  bump(key, 'w', #entries)
  enlist(key, host)
  local h = state(host)
  if h.f and h.ba ~= '1' then
    -- The operator expects that these visits succeed now.
    call('HDEL', P .. 'h:' .. host, 'b', 'br', 'ba', 'f')
    h.b, h.f = nil, nil
  end
  arm(host)
end

-- Take the chosen visits from their list. Visits at the front that stay move to the indexes of the taken ones: writing
-- to an index is cheap, but removing from the middle costs O(length of the list). An empty list of a host stays until
-- it is the first.
if chosen then
  local head = chosen.list > 0 and (call('HGET', fi, chosen.list) or '')
  local list = P .. (head and 'fq:' .. key .. ':' .. chosen.list or 'failed:' .. key)
  local taken, lines = {}, {}
  for _, visit in ipairs(chosen) do
    if not taken[visit.index] and call('LINDEX', list, visit.index) == visit.line then
      taken[visit.index] = true
      lines[#lines + 1] = visit
    end
  end
  local front = #lines > 0 and call('LPOP', list, #lines) or {}
  local stay = {}
  for i, line in ipairs(front) do
    if not taken[i - 1] then stay[#stay + 1] = line end
  end
  for _, visit in ipairs(lines) do
    if visit.index >= #lines then call('LSET', list, visit.index - #lines, table.remove(stay)) end
    local packed = head and head .. '\n' .. visit.line or visit.line
    local prio, host, why, start = string.match(packed, '^(%-?%d+):(%S+) ([^\n]*)\n()')
    admit(host, prio, {string.sub(packed, start)}, why)
  end
  saveRates()
  save()
  wake()
  return {S.OK, #lines, 0, 0}
end

local done = 0
local list_ = P .. (kind == 'f' and 'failed:' or 'dropped:') .. key
for _, packed in ipairs(call('LPOP', list_, 100) or {}) do
  local prio, host, why, start = string.match(packed, '^(%-?%d+):(%S+) ([^\n]*)\n()')
  admit(host, prio, {string.sub(packed, start)}, why)
  done = done + 1
end
if done < 100 and kind == 'f' then
  local last = tonumber(call('HGET', fi, 'n')) or 0
  local first = tonumber(call('HGET', fi, 'first')) or 1
  if first <= math.min(last, lastList) then
    local prio, host, why = string.match(call('HGET', fi, first) or '', '^(%-?%d+):(%S+) (.*)$')
    local list = P .. 'fq:' .. key .. ':' .. first
    local entries = prio and call('LPOP', list, 100 - done) or {}
    if #entries > 0 then admit(host, prio, entries, why) end
    done = done + #entries
    if call('EXISTS', list) == 0 then
      call('HDEL', fi, first)
      call('HSET', fi, 'first', first + 1)
    end
  end
end
saveRates()
save()
wake()
local more = call('EXISTS', list_) == 1 or kind == 'f' and (tonumber(call('HGET', fi, 'first')) or 1) <= lastList
return {S.OK, done, more and 1 or 0, lastList}
