-- journal: links to other shards, kept until those shards can no longer lose them. `j:<server process>` is a list of
-- '<ms> <links>' that this process has confirmed for its shards. `journal` maps '<shard>:<server process>' to the last
-- call that wrote links of this shard. The links are opaque (journal.py). Nothing is removed while the process does not
-- respond: only a new entry removes old ones, and only occasionally.
local HORIZON = 120000

local function journal(process, shards, links, mark)
  local list = P .. 'j:' .. process
  if call('RPUSH', list, NOW .. ' ' .. links) % 8 == 1 then
    call('PEXPIRE', list, 86400000)
    for _ = 1, 16 do
      if tonumber(string.match(call('LINDEX', list, 0), '^%d+')) > NOW - HORIZON then break end
      call('LPOP', list)
    end
  end
  local marks = {}
  for shard in string.gmatch(shards, '%d+') do
    marks[#marks + 1] = shard .. ':' .. process
    marks[#marks + 1] = mark
  end
  call('HSET', P .. 'journal', unpack(marks))
end
