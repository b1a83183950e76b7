-- validators: the version of a page as its server names it (ETag, Last-Modified), for conditional requests.
-- Hashes `v:<crawl>:<n>`, fingerprint -> validator, kept small enough that Valkey and Redis store them as listpacks: the
-- number of hashes grows by one for every 100 fields (linear hashing, as in seen), and a validator is cut into pieces
-- of 64 bytes, '<fingerprint>', '<fingerprint>.1', ...; a piece that is full may have a next one.
-- Fields of the shard's copy of the crawl: vn hashes, vc fields.
local FIELDS, PIECE = 100, 64

local function validatorHash(key, hashes, fingerprint)
  return P .. 'v:' .. key .. ':' .. spread(hashes, level(hashes), fingerprint)
end

-- The fields of a validator and their pieces.
local function readValidator(hash, fingerprint)
  local fields, pieces = {}, {}
  local field = fingerprint
  repeat
    local piece = call('HGET', hash, field)
    if piece then
      fields[#fields + 1] = field
      pieces[#pieces + 1] = piece
    end
    field = fingerprint .. '.' .. #fields
  until not piece or #piece < PIECE
  return fields, pieces
end

-- Split the next hash in turn: one more bit decides where each field goes.
local function splitValidators(key, c)
  local m = level(c.vn)
  local from, to = P .. 'v:' .. key .. ':' .. (c.vn - m), P .. 'v:' .. key .. ':' .. c.vn
  local flat, go, gone = call('HGETALL', from), {}, {}
  for i = 1, #flat, 2 do
    local fingerprint = string.match(flat[i], '^%-?%d+')
    if fingerprint and lastNine(fingerprint) % (2 * m) == c.vn then
      gone[#gone + 1] = flat[i]
      go[#go + 1] = flat[i]
      go[#go + 1] = flat[i + 1]
    end
  end
  for i = 1, #go, 1000 do call('HSET', to, unpack(go, i, math.min(i + 999, #go))) end
  for i = 1, #gone, 1000 do call('HDEL', from, unpack(gone, i, math.min(i + 999, #gone))) end
  put(key, 'vn', c.vn + 1)
end

-- `flat`: fields as they are in a hash: field, value, ...
local function writeValidator(key, c, fingerprint, flat)
  if c.vn == 0 then put(key, 'vn', 1) end
  put(key, 'vc', c.vc + call('HSET', validatorHash(key, c.vn, fingerprint), unpack(flat)))
end

local function growValidators(key, c)
  while c.vc > c.vn * FIELDS do splitValidators(key, c) end
end
