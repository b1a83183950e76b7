-- journal: links to other shards, kept until those shards cannot forget them any more. `j:<shard>:<server process>` is a
-- list of '<ms> <links>' that this process of the other shard has confirmed; `journals` names the lists. The links are
-- opaque (journal.py). Nothing is removed while the other shard does not answer: only a new entry removes old ones.
local HORIZON = 120000

local function journal(name, links)
  local list = P .. 'j:' .. name
  call('RPUSH', list, NOW .. ' ' .. links)
  call('PEXPIRE', list, 86400000)
  call('SADD', P .. 'journals', name)
  for _ = 1, 20 do
    if tonumber(string.match(call('LINDEX', list, 0), '^%d+')) > NOW - HORIZON then break end
    call('LPOP', list)
  end
end
