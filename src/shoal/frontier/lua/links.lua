-- links: the journal of a shard: links to other shards that must be added again if those shards lose writes.
-- ARGV    1 now | 2 what to do: l list the names, r read, w write, m move | 3 name: '<shard>:<server process>', l: ''
--         then r: the first entry to read | w: links | m: the server process that has confirmed these entries now, and
--         the entries as they were read
-- Reply   OK, the server process of this shard, then l: names, r: up to 20 entries
-- Keeps   an entry is moved by one caller: if it is not the first any more, another one has moved it
-- Cost    O(entries)
--include shard open

local what = text(1, '^[lrwm]$')
local name = text(40, '^[%d]*:?%x*$')
if wrong then return {S.INVALID, wrong} end
--include server run journal

local reply = {S.OK, RUN}
if what == 'l' then
  for _, known in ipairs(call('SMEMBERS', P .. 'journals')) do reply[#reply + 1] = known end
elseif what == 'r' then
  local from = number(0, BIG)
  if wrong then return {S.INVALID, wrong} end
  for _, entry in ipairs(call('LRANGE', P .. 'j:' .. name, from, from + 19)) do reply[#reply + 1] = entry end
  if #reply == 2 and from == 0 then call('SREM', P .. 'journals', name) end
elseif what == 'w' then
  local links = text(8388608)
  if wrong then return {S.INVALID, wrong} end
  journal(name, links)
else
  local run = text(16, '^%x+$')
  local entries = {}
  while not wrong and at < #ARGV do entries[#entries + 1] = text(8388608) end
  if wrong then return {S.INVALID, wrong} end
  for _, entry in ipairs(entries) do
    if call('LINDEX', P .. 'j:' .. name, 0) ~= entry then break end
    call('LPOP', P .. 'j:' .. name)
    journal(string.match(name, '^%d+') .. ':' .. run, string.sub(entry, string.find(entry, ' ') + 1))
  end
end
return reply
