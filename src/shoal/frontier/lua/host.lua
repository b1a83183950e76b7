-- host: set what an operator or robots.txt requires of a host, and read its state.
-- ARGV    1 now | 2 host | then field, value, ...: d delay ms, n slots, cd robots crawl delay ms, rk 1 = robots.txt is
--         known, x why it is blocked, reset 1 = forget back-off, failures and gate; '' removes d, n, cd, rk, x
-- Reply   OK, now, number of crawls with waiting visits, field, value, ...
-- Keeps   only an operator moves a gate earlier: by a smaller delay, or by reset
--include shard open crawls queues hosts back_offs

local host = text(260, HOST)
local patterns = {d = '^%d*$', n = '^%d*$', cd = '^%d*$', rk = '^1?$', x = '^[^%c]*$', reset = '^1$'}
local changes_ = {}
while not wrong and at < #ARGV do
  local field = text(8)
  if not patterns[field] then wrong = 'field' break end
  changes_[field] = text(64, patterns[field])
end
if wrong then return {S.INVALID, wrong} end

if next(changes_) then
  call('DEL', P .. '-')
  local h = state(host)
  local blockedBefore = h.x
  for field, value in pairs(changes_) do
    if field == 'reset' then
      if (h.b or 0) > NOW or (h.f or 0) > 0 then noteBackOff(host, 0, 0, 0, 'cleared by an operator') end
      call('HDEL', P .. 'h:' .. host, 'b', 'br', 'ba', 'f')
      h.b, h.f = nil, nil
    elseif value == '' then
      call('HDEL', P .. 'h:' .. host, field)
      h[field] = nil
    else
      keep(host, field, field == 'x' and value or tonumber(value))
    end
  end
  if h.x and not blockedBefore then call('HINCRBY', KEYS[1], 'blocked', 1) end
  if blockedBefore and not h.x then call('HINCRBY', KEYS[1], 'blocked', -1) end
  -- For lists of blocked hosts: a host without URLs is in no other list.
  if h.x then call('SADD', P .. 'blocked', host) else call('SREM', P .. 'blocked', host) end
  if changes_.d or changes_.reset then
    -- The gate is set to the last finish plus the new delay.
    local delay = view(host).delay
    for i = 1, h.mx or 1 do
      local t = tonumber(h['t' .. suffix(i)])
      if h['g' .. suffix(i)] then keep(host, 'g' .. suffix(i), t and t + delay or 0) end
    end
  end
  arm(host)
  save()
  wake()
end
return {S.OK, NOW, call('ZCARD', P .. 'w:' .. host), unpack(call('HGETALL', P .. 'h:' .. host))}
