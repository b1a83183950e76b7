-- server: which server process holds this shard, and since which promotion: 16 digits. A restart changes the run id, a
-- failover the replication id, even if it returns to a process that was the primary before.
local function serverRun()
  local info = redis.call('INFO', 'server', 'replication')
  local run = string.match(info, 'run_id:(%x+)')
  local line = string.match(info, 'master_replid:(%x+)')
  return string.sub(run, 1, 8) .. string.sub(line or run, 1, 8)
end
