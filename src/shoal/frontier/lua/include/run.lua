-- run: whether the server process that answers is the one that wrote here last; if not, EPOCH (see epoch.lua).
-- A lease may have survived a loss of writes while what was written after it has not: the links of its pages. So in an
-- epoch that began with a loss, leases of the server process before are over.
local RUN = string.match(call('INFO', 'server'), 'run_id:(%x+)')
if RUN ~= META[4] then return {S.EPOCH} end
local function stale(token)
  return META[6] == '1' and string.sub(token, 1, 10) ~= string.sub(RUN, 1, 10)
end
