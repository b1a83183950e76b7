-- found: create a shard, or read what it is. The only script that runs on a shard without `meta`.
-- ARGV    1 shard | 2 shards | 3 seed of fingerprints | 4 what to do: '' read, m create it if absent,
--         c mark the store as complete, s set this seed (a dump is loaded)
-- Reply   OK, schema, shards, seed, 1 = the store is complete  or  ABSENT
-- Keeps   an existing shard stays unchanged. A shard of a complete store is never created again: if it is absent, it is
--         being moved to another node, or it is lost
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
