-- leave: a worker has stopped, so the others need not wait until its heartbeats are missing.
-- ARGV    1 now | 2 worker
-- Reply   OK
--include shard beats

local worker = text(64, '^[%w_.@-]+$')
if wrong then return {S.INVALID, wrong} end
drop({worker})
return {S.OK}
