-- Runs commands that the user may lack permissions for, on a key that nothing else uses.
-- KEYS[1]  the key
-- ARGV     the words of each command, separated by spaces; KEY stands for the key. The first gives the key a time to
--          live.
-- returns  for each command the error, or an empty text
local errors = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in line:gmatch('%S+') do
    words[#words + 1] = word == 'KEY' and KEYS[1] or word
  end
  errors[i] = ''
  -- Without the first one, these two would make a key that never expires.
  if errors[1] == '' or words[1] ~= 'INCR' and words[1] ~= 'SETRANGE' then
    local reply = redis.pcall(unpack(words))
    errors[i] = type(reply) == 'table' and reply.err or ''
  end
end
return errors
