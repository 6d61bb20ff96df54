-- One key, one strategy, one cost: what nearly every call is.
-- KEYS[1]  the state
-- ARGV[1]  <d now, -1 = the server's> <I4 callers> <d cost>, then the limit
-- returns  <d now>, then stretches as `take` adds them
local limit = read(ARGV[1], at)
local state = load(KEYS[1])
local reply = {struct.pack('<d', now)}
take(limit, state, now, cost, times, reply)
if state.is_changed then
  save(KEYS[1], limit, state, now)
end
return table.concat(reply)
