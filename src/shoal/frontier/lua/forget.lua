-- forget: forget that a crawl has seen URLs, so that they can be admitted again.
-- ARGV    1 now | 2 crawl | 3.. fingerprints
-- Reply   OK, how many were known
-- Cost    O(fingerprints), at most 250
--include shard open crawls seen

local key = text(16, CRAWL)
local fingerprints = {}
while not wrong and at < #ARGV do fingerprints[#fingerprints + 1] = text(20, '^%-?%d+$') end
if wrong or #fingerprints > 250 then return {S.INVALID, wrong or 'fingerprints'} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end

call('DEL', P .. '-')
local known = 0
for _, fingerprint in ipairs(fingerprints) do
  local here = call('SREM', seenSet(key, c.g, c.gn, level(c.gn), fingerprint), fingerprint)
  if here == 1 then bump(key, 'gc', -1) end
  if c.on > 0 then here = math.max(here, call('SREM', seenSet(key, c.g - 1, c.on, level(c.on), fingerprint), fingerprint)) end
  known = known + here
end
save()
return {S.OK, known}
