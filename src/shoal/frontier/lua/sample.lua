-- sample: URLs that a crawl excluded or did not follow, up to 20 for each reason, at its home shard.
-- ARGV    1 now | 2 id | then reason, URL, ... to be stored
-- Reply   OK, reason, URLs with a line feed between them, ...  or  UNKNOWN
-- Keeps   the first URLs of a reason, each once, and the first 100 reasons. A deleted crawl has none
-- Refused as a whole when the store is full, unless nothing is to be stored: its first write needs memory
-- Cost    O(URLs), at most 250
--include shard open

local MOST, REASONS = 20, 100
local id = text(128, '^[%w_.:@-]+$')
local pairs_ = {}
while not wrong and at < #ARGV do pairs_[#pairs_ + 1] = {text(64, '^[^%c]+$'), text(2000, '^[^%c]+$')} end
if wrong or #pairs_ > 250 then return {S.INVALID, wrong or 'URLs'} end

local record = call('HMGET', P .. 'crawl:' .. id, 'key', 'st')
if not record[1] then return {S.UNKNOWN} end
if record[2] == 'd' then return {S.OK} end
local samples = P .. 'samples:' .. record[1]
for _, pair in ipairs(pairs_) do
  local reason, url = pair[1], pair[2]
  local urls = call('HGET', samples, reason)
  if urls then
    local _, breaks = string.gsub(urls, '\n', '')
    if breaks + 1 < MOST and not string.find('\n' .. urls .. '\n', '\n' .. url .. '\n', 1, true) then
      call('HSET', samples, reason, urls .. '\n' .. url)
    end
  elseif call('HLEN', samples) < REASONS then
    call('HSET', samples, reason, url)
  end
end
local reply = {S.OK}
if #pairs_ == 0 then
  for _, part in ipairs(call('HGETALL', samples)) do reply[#reply + 1] = part end
end
return reply
