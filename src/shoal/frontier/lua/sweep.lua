-- sweep: delete sets of fingerprints that are no longer used. Every lease deletes some; a deletion calls sweep repeatedly.
-- ARGV    1 now
-- Reply   OK, 1 = there may be more
-- Cost    at most 500 sets
--include shard open crawls seen

call('DEL', P .. '-')
for _ = 1, 10 do
  if sweep() == 0 then return {S.OK, 0} end
end
return {S.OK, 1}
