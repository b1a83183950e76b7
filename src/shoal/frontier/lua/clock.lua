-- clock: what time it is in this shard. Writes nothing.
-- ARGV    1 now
-- Reply   OK, now, epoch
--include shard

return {S.OK, NOW, tonumber(META[3])}
