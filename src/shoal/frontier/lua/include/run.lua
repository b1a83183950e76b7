-- run: checks that the current server process is the one that wrote here last; if not, EPOCH (see epoch.lua).
-- CLOCK also when the caller has no reading of the clock, and the clock is behind times that were written here.
-- A lease may have survived a loss of writes although later writes, i.e. the links of its pages, have not. Therefore, in an
-- epoch that began with a loss, leases of the previous server process are lost.
local RUN = serverRun()
if RUN ~= META.run then return {S.EPOCH} end
if TICK == 1 and expected == '' and NOW < (tonumber(call('HGET', KEYS[1], 'last')) or 0) - 1000 then return {S.CLOCK, NOW} end
local function stale(token)
  return META.unsafe == '1' and string.sub(token, 1, 16) ~= RUN
end
