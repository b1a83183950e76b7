-- found: make a shard, or say what it is. The only script that may meet a shard without `meta`.
-- ARGV    1 shard | 2 shards | 3 seed of fingerprints | 4 what to do: '' look, m make it if absent,
--         c the store is complete, s it has this seed now (a dump is loaded)
-- Reply   OK, schema, shards, seed, 1 = the store is complete  or  ABSENT
-- Keeps   what is there already stays as it is. A complete store never gets a shard made again: one that is absent
--         then is on its way to another node, or lost
--include server
local there = redis.call('EXISTS', KEYS[1]) == 1
if not there and ARGV[4] ~= 'm' then return {S.ABSENT} end
if not there then
  redis.call('HSET', KEYS[1], 'schema', SCHEMA, 'shard', ARGV[1], 'shards', ARGV[2], 'seed', ARGV[3], 'epoch', 1, 'run', serverRun())
end
if ARGV[4] == 'c' then redis.call('HSET', KEYS[1], 'complete', 1) end
if ARGV[4] == 's' then redis.call('HSET', KEYS[1], 'seed', ARGV[3]) end
local m = redis.call('HMGET', KEYS[1], 'schema', 'shards', 'seed', 'complete')
return {S.OK, m[1], m[2], m[3], tonumber(m[4]) or 0}
