-- open: refuses writes while the shard is frozen (its slot is being moved by hand, or it is being dumped).
if META.frozen and tonumber(META.frozen) > NOW then return {S.HELD, tonumber(META.frozen) - NOW} end
