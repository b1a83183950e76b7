-- clock: the time in this shard, and which readings of its clock can be compared. Writes nothing.
-- ARGV    1 now
-- Reply   OK, now, epoch, since, doubt (-1 = none)
--include shard

return {S.OK, NOW, tonumber(META.epoch), SINCE, tonumber(META.doubt) or -1}
