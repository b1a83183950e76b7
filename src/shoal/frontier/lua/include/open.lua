-- open: refuses writes while the shard is frozen (its slot is being moved by hand, or it is being dumped).
if META[7] and tonumber(META[7]) > NOW then return {S.HELD, tonumber(META[7]) - NOW} end
