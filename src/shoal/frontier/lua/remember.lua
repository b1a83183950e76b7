-- remember: store the validators of fetched pages, for their revisits.
-- ARGV    1 now | 2 crawl | then per page: fingerprint (signed decimal), validator ('' = it no longer has one)
-- Reply   OK, number of fields here  or  UNKNOWN
-- Keeps   nothing is stored for an ended crawl
-- Refused as a whole when the store is full, unless nothing is to be stored: its first write needs memory
-- Cost    O(pages), at most 250
--include shard open crawls seen validators

local key = text(16, CRAWL)
local fingerprints, validators = {}, {}
while not wrong and at < #ARGV do
  local fingerprint = text(20, '^%-?%d+$')
  if not validators[fingerprint] then fingerprints[#fingerprints + 1] = fingerprint end
  validators[fingerprint] = text(4096)
end
if wrong or #fingerprints > 250 then return {S.INVALID, wrong or 'pages'} end
local c = crawl(key)
if not c then return {S.UNKNOWN} end

if not ended(c) then
  local old = {}
  for i, fingerprint in ipairs(fingerprints) do
    old[i] = c.vn > 0 and readValidator(validatorHash(key, c.vn, fingerprint), fingerprint) or {}
  end
  for i, fingerprint in ipairs(fingerprints) do
    local flat, validator = {}, validators[fingerprint]
    for from = 1, #validator, PIECE do
      flat[#flat + 1] = from == 1 and fingerprint or fingerprint .. '.' .. (from - 1) / PIECE
      flat[#flat + 1] = string.sub(validator, from, from + PIECE - 1)
    end
    if #flat > 0 then writeValidator(key, c, fingerprint, flat) end
  end
  -- Pieces that are left of longer validators are deleted last: the first write must not be one that frees memory.
  for i, fingerprint in ipairs(fingerprints) do
    local gone = {}
    for j = math.ceil(#validators[fingerprint] / PIECE) + 1, #old[i] do gone[#gone + 1] = old[i][j] end
    if #gone > 0 then put(key, 'vc', c.vc - call('HDEL', validatorHash(key, c.vn, fingerprint), unpack(gone))) end
  end
  growValidators(key, c)
end
save()
return {S.OK, c.vc}
