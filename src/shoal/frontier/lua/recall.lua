-- recall: the validators of pages that are fetched again. Writes nothing.
-- ARGV    1 now | 2 crawl | 3.. fingerprints (signed decimal)
-- Reply   OK, then the validator of each ('' = none)
-- Keeps   a hash that Shoal did not write has no validators
-- Cost    O(fingerprints), at most 250
--include shard crawls seen validators

local key = text(16, CRAWL)
local fingerprints = {}
while not wrong and at < #ARGV do fingerprints[#fingerprints + 1] = text(20, '^%-?%d+$') end
if wrong or #fingerprints > 250 then return {S.INVALID, wrong or 'fingerprints'} end
local hashes = tonumber(call('HGET', P .. 'c:' .. key, 'vn')) or 0
local reply = {S.OK}
for _, fingerprint in ipairs(fingerprints) do
  local ok, _, pieces = pcall(readValidator, validatorHash(key, math.max(1, hashes), fingerprint), fingerprint)
  reply[#reply + 1] = ok and hashes > 0 and table.concat(pieces) or ''
end
return reply
