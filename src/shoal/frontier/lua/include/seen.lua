-- seen: exact dedup in many small integer sets, about 8.5 bytes per URL.
-- A set stays under 512 members, so that Valkey and Redis store it as a sorted array of 8-byte integers. The number of
-- sets grows by one for every 200 members (linear hashing): 400 in the fullest on average, five sigma below 512.
-- A Lua number is a double, so a set is chosen by the fingerprint's last nine digits, never by all of it.
local LOAD = 200

local function lastNine(fingerprint)
  return tonumber(string.sub(fingerprint, -9)) % 1000000000
end

local function level(sets)
  local m = 1
  while m * 2 <= sets and m < BIG do m = m * 2 end
  return m
end

-- The number of the set that a fingerprint is in; m = level(sets).
local function spread(sets, m, fingerprint)
  local h = lastNine(fingerprint)
  local b = h % (2 * m)
  if b >= sets then b = h % m end
  return b
end

local function seenSet(key, generation, sets, m, fingerprint)
  return P .. 's:' .. key .. ':' .. generation .. ':' .. spread(sets, m, fingerprint)
end

-- Split the next set in turn: one more bit decides where each member goes.
local function split(key, c)
  local m = level(c.gn)
  local from = P .. 's:' .. key .. ':' .. c.g .. ':' .. (c.gn - m)
  local stay, go = {}, {}
  for _, fingerprint in ipairs(call('SMEMBERS', from)) do
    if lastNine(fingerprint) % (2 * m) == c.gn then go[#go + 1] = fingerprint else stay[#stay + 1] = fingerprint end
  end
  if #go > 0 then
    call('DEL', from)
    if #stay > 0 then call('SADD', from, unpack(stay)) end
    call('SADD', P .. 's:' .. key .. ':' .. c.g .. ':' .. c.gn, unpack(go))
  end
  put(key, 'gn', c.gn + 1)
end

-- A lifetime is two generations: a URL is remembered for at least `life`, at most twice that.
local function turnGeneration(key, c)
  if c.life == 0 or NOW - c.gs < c.life then return end
  if c.on > 0 then call('RPUSH', P .. 'trash', key .. ':' .. (c.g - 1) .. ':' .. c.on) end
  local old = NOW - c.gs >= 2 * c.life
  if old then call('RPUSH', P .. 'trash', key .. ':' .. c.g .. ':' .. c.gn) end
  put(key, 'on', old and 0 or c.gn)
  put(key, 'g', c.g + 1)
  put(key, 'gn', 1)
  put(key, 'gc', 0)
  put(key, 'gs', NOW)
end

local function isSeen(key, c, m, fingerprint)
  return call('SISMEMBER', seenSet(key, c.g, c.gn, m, fingerprint), fingerprint) == 1
    or (c.on > 0 and call('SISMEMBER', seenSet(key, c.g - 1, c.on, level(c.on), fingerprint), fingerprint) == 1)
end

local function remember(key, c, m, fingerprint)
  if c.on > 0 and call('SISMEMBER', seenSet(key, c.g - 1, c.on, level(c.on), fingerprint), fingerprint) == 1 then
    return false
  end
  if call('SADD', seenSet(key, c.g, c.gn, m, fingerprint), fingerprint) == 0 then return false end
  return true
end

-- Unlink sets of a generation that is no longer used, at most 50 per call. Returns 0 if there are none.
local function sweep()
  local first = call('LINDEX', P .. 'trash', 0)
  if not first then return 0 end
  local key, generation, sets = string.match(first, '^(%w+):(%d+):(%d+)$')
  sets = tonumber(sets)
  local names = {}
  for b = math.max(0, sets - 50), sets - 1 do names[#names + 1] = P .. 's:' .. key .. ':' .. generation .. ':' .. b end
  if #names > 0 then call('UNLINK', unpack(names)) end
  if sets > 50 then
    call('LSET', P .. 'trash', 0, key .. ':' .. generation .. ':' .. (sets - 50))
  else
    call('LPOP', P .. 'trash')
  end
  return 1
end
