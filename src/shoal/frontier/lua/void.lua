-- void: was a dead worker's last acknowledgement accepted? If it was not, it never will be.
-- ARGV    1 now | 2 worker | 3 request | then the tokens in it
-- Reply   OK, now, tokens of lost leases: as acknowledge replied, or all of them
-- Keeps   the reply is final: an acknowledgement that arrives later gets it too, and changes nothing
-- Frees memory first, so that it runs when the store is full
-- Cost    O(tokens)
--include shard open

local worker = text(64, '^[%w_.@-]+$')
local request = text(32, '^%w+$')
local tokens = {}
while not wrong and at < #ARGV do tokens[#tokens + 1] = text(128, '^%x+%.%d+%-%d+%.[%w_.@-]+$') end
if wrong then return {S.INVALID, wrong} end

call('DEL', P .. '-')
local reply = {S.OK, NOW}
local last = call('HGET', P .. 'acks', worker)
if last and string.match(last, '^%w+') == request then
  for token in string.gmatch(string.sub(last, #request + 1), '%S+') do reply[#reply + 1] = token end
  return reply
end
call('HSET', P .. 'acks', worker, request .. ' ' .. table.concat(tokens, ' '))
for _, token in ipairs(tokens) do reply[#reply + 1] = token end
return reply
