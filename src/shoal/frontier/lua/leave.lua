-- leave: this worker has stopped; the others need not wait until it is silent.
-- ARGV    1 now | 2 worker
-- Reply   OK
--include shard beats

local worker = text(64, '^[%w_.@-]+$')
if wrong then return {S.INVALID, wrong} end
drop({worker})
return {S.OK}
