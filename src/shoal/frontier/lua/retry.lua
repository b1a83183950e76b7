-- retry: admit failed visits of a crawl again, as if they were new; or those that a limit of their host excluded.
-- ARGV    1 now | 2 crawl | 3 '' at first, then what the reply says | 4 f failed, x excluded
-- Reply   OK, how many, 1 = there are more, the last list to retry (what is set aside meanwhile is not retried)
-- Keeps   a host's back-off that followed from failures ends here; one that the server requested stays
--         f, x and a only grow: the retry is a new admission, and rf or rx says how many of f or x are no more
-- Cost    at most 100 visits
--include shard open crawls seen queues hosts

local key = text(16, CRAWL)
local until_ = numberOr(nil, 0, BIG)
local kind = text(1, '^[fx]$')
if wrong then return {S.INVALID, wrong} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end
if ended(c) then return {S.ENDED, c.st} end

call('DEL', P .. '-')
local fi = P .. 'fi:' .. key
until_ = until_ or tonumber(call('HGET', fi, 'n')) or 0
local function admit(host, prio, entries, why)
  bump(key, 'r' .. kind, #entries)
  reason(key, (kind == 'f' and 'retried:' or 'readmitted:') .. why, #entries)
  for i, entry in ipairs(entries) do
    -- A new admission starts with no retries, expiries or blames.
    local flags = string.byte(entry, 1)
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
  if first <= math.min(last, until_) then
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
save()
wake()
local more = call('EXISTS', list_) == 1 or kind == 'f' and (tonumber(call('HGET', fi, 'first')) or 1) <= until_
return {S.OK, done, more and 1 or 0, until_}
