-- links: the journal of a shard: links to other shards, to be added again if those shards lose writes.
-- ARGV    1 now | 2 what to do: l list the names, r read, w write, d drop a name | 3 server process that confirmed the
--         links (l: '') | then r: how many of the last entries are known | w: shards, links, a name for the call
--         d: shard, the last call that wrote links of it
-- Reply   OK, the server process of this shard, then l: name '<shard>:<server process>' and last call of each
--         r: up to 20 entries before the known ones
-- Keeps   a name is dropped only if no links were written under it since it was listed
-- Cost    O(entries)
--include shard open

local action = text(1, '^[lrwd]$')
local process = text(16, '^%x*$')
if wrong then return {S.INVALID, wrong} end
--include server run journal

local reply = {S.OK, RUN}
if action == 'l' then
  for _, part in ipairs(call('HGETALL', P .. 'journal')) do reply[#reply + 1] = part end
elseif action == 'r' then
  local known = number(0, BIG)
  if wrong then return {S.INVALID, wrong} end
  -- From the end: old entries may leave the front meanwhile.
  for _, entry in ipairs(call('LRANGE', P .. 'j:' .. process, -known - 20, -known - 1)) do reply[#reply + 1] = entry end
elseif action == 'w' then
  local shards, links, mark = text(16384, '^[%d,]+$'), text(2 * ENTRY), text(32, '^%w+$')
  if wrong then return {S.INVALID, wrong} end
  journal(process, shards, links, mark)
else
  local name, mark = text(5, '^%d+$') .. ':' .. process, text(32, '^%w+$')
  if wrong then return {S.INVALID, wrong} end
  if call('HGET', P .. 'journal', name) == mark then call('HDEL', P .. 'journal', name) end
  for _, other in ipairs(call('HKEYS', P .. 'journal')) do
    if string.match(other, ':(%x+)$') == process then return reply end
  end
  call('UNLINK', P .. 'j:' .. process)
end
return reply
