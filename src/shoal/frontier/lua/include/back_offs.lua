-- back_offs: the last back-offs of a host, for people. `rests:<host>` lists '<ms> <length ms> <failures in a row> <1 = the
-- host was given up> <reason>', newest first; a length of 0 means that an operator ended the back-off. `rested` has the
-- hosts by their last back-off.
-- A host has at most 20 back-offs of about 50 bytes, kept for seven days; a shard keeps those of its last 1,000 hosts.
local MOST_BACK_OFFS, MOST_BACK_OFF_HOSTS, BACK_OFF_KEPT = 20, 1000, 604800

local function noteBackOff(host, ms, failures, given_up, why)
  local list = P .. 'rests:' .. host
  call('LPUSH', list, string.format('%.0f %.0f %.0f %d %s', NOW, ms, failures, given_up, why))
  call('LTRIM', list, 0, MOST_BACK_OFFS - 1)
  call('EXPIRE', list, BACK_OFF_KEPT)
  call('ZADD', P .. 'rested', NOW, host)
  call('EXPIRE', P .. 'rested', BACK_OFF_KEPT)
  if call('ZCARD', P .. 'rested') > MOST_BACK_OFF_HOSTS then
    local oldest = call('ZPOPMIN', P .. 'rested')[1]
    call('UNLINK', P .. 'rests:' .. oldest)
  end
end
