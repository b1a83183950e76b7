-- clock: what time it is in this shard. Writes nothing.
-- ARGV    1 now
-- Reply   OK, now
--include shard

return {S.OK, NOW}
