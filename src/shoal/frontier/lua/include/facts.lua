-- facts: the facts of a crawl, including those that Shoal 0.1 stored among its statistics.
-- Names    branch:<spider>, slot:<host>, export:<file>, submitted, notified, bytes; for seeds and for pass: _begun and
--          _done (numbers; in progress while begun is greater) and _began_ms
local FACT = '^[^%s%c]+$'
local OLD = {'^branch:', '^slot:', '^seeds_[bd]', '^pass_[bd]', '^submitted$', '^notified$', '^bytes$'}

local function whole(value)
  return tonumber(string.match(value, '^%d+$')) or 0
end

-- Returns the facts by name, and how many of them are in the hash of facts.
local function facts(key)
  local values_, stored = {}, 0
  local flat = call('HGETALL', P .. 'facts:' .. key)
  for i = 1, #flat, 2 do
    values_[flat[i]] = whole(flat[i + 1])
    stored = stored + 1
  end
  flat = call('HGETALL', P .. 'tally:' .. key)
  for i = 1, #flat, 2 do
    for _, pattern in ipairs(OLD) do
      if string.find(flat[i], pattern) then
        local old, new = whole(flat[i + 1]), values_[flat[i]] or 0
        -- Workers of both versions count bytes, each in its own hash.
        values_[flat[i]] = flat[i] == 'bytes' and math.min(old + new, BIG) or math.max(old, new)
        break
      end
    end
  end
  return values_, stored
end
