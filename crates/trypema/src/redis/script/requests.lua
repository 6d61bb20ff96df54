-- Any number of requests, decided in their order; each a list of checks that are spent all or none.
-- KEYS     the states, each followed by its helpers: for `reserve` and `reset` the count of resets, for `refund` that and
--          what remembers the receipt, for `lease` that and the instances that share the key
-- ARGV[1]  <d now, -1 = the server's> <I2 requests>, for each <B checks>, for each
--          <B strategy> <B verb> <I2 index of the state in KEYS> <I4 times> <d cost> <d extra>, then the limit, unless the verb has none,
--          and for `heartbeat`, which has no strategy, <c8 instance> (extra is for how long it is live),
--          and for `lease` <d want> <d units back> <d recorded at> <d seen> <d live for> <I4 resets> <c8 instance>
-- returns  <d now>, then for each check <B 1> <d number> and, for verbs that decide, stretches as `take` adds them,
--          for `lease` after <I4 instances> <I4 resets>;
--          or <B 0> <I2 length> and why its request failed: then nothing of that request was spent
local argument, at = ARGV[1], 1
local given, requests
given, requests, at = unpack('<dI2', argument, at)
local now = time_from(given)
local TAKE = 1

local reply, answered = {pack('<d', now)}, 0
-- What was read of each key, and whether something was written: what fails after that may have been spent.
local states, is_written = {}, false
local quicks = {}

-- Answers a request that is one take, in its usual case; if it is not, `at` stays.
local function take_quickly()
  local count, number, verb, index, times, cost, _, limit_at = unpack('<BBBI2I4dd', argument, at)
  local key = KEYS[index]
  if count > 1 or verb ~= TAKE or times > 1 or states[key] or not quick_of[number] then
    return false
  end
  quicks[number] = quicks[number] or quick_of[number]()
  local is_read, outcome, after = pcall(quicks[number], key, argument, limit_at, now, cost)
  if not is_read or not outcome then
    return false
  end
  at, is_written = after, true
  reply[#reply + 1] = pack('<BdI4', 1, 0, 1) .. outcome
  return true
end

-- In most calls every request is in its usual case, and nothing else need be made.
while answered < requests and take_quickly() do
  answered = answered + 1
end
if answered == requests then
  return table.concat(reply)
end
