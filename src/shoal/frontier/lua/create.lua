-- create: create a crawl at its home shard.
-- ARGV    1 now | 2 id | 3 nonce of the caller | 4 page limit, 0 = none | 5 specification (opaque)
-- Reply   OK, key, version  or  EXISTS, state
-- Keeps   an id is used only once; the same nonce again gets the same reply
--         a key is made of the time and the home shard's number, so that a store that lost its last writes never
--         gives a key twice
--include shard open

local id = text(128, '^[%w_.:@-]+$')
local nonce = text(32, '^%w+$')
local pages = number(0, BIG)
local spec = text(1048576)
if wrong then return {S.INVALID, wrong} end

local record = P .. 'crawl:' .. id
local known = call('HMGET', record, 'nonce', 'key', 'v', 'st')
if known[1] == nonce then return {S.OK, known[2], tonumber(known[3])} end
if known[1] then return {S.EXISTS, known[4]} end

local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local function base36(n, width)
  local out = ''
  repeat
    local d = n % 36
    out = string.sub(DIGITS, d + 1, d + 1) .. out
    n = math.floor(n / 36)
  until n == 0
  return string.rep('0', width - #out) .. out
end
local n = math.max((tonumber(call('HGET', KEYS[1], 'crawls')) or 0) + 1, math.floor(NOW / 100))
call('HSET', KEYS[1], 'crawls', n)
local key = base36(n, 7) .. base36(tonumber(META.shard), 1)
call('HSET', record, 'id', id, 'nonce', nonce, 'key', key, 'v', 1, 'st', 'r', 'spec', spec, 'created', NOW, 'pages', pages, 'left', pages)
call('HSET', P .. 'keys', key, id)
call('ZADD', P .. 'crawls', NOW, id)
return {S.OK, key, 1}
