-- One key, one strategy, one cost: nearly every call.
-- KEYS[1]  the state
-- ARGV[1]  <d now, -1 = the server's> <I4 callers> <d cost>, then the limit
-- returns  <d now>, then stretches as take.lua adds them
local argument = ARGV[1]
local now, times, cost, at = unpack('<dI4d', argument)
