-- The start of `single`: the usual case is over before anything else of the strategy is made.
local given, times, cost, at = unpack('<dI4d', ARGV[1])
local now = time_from(given)
if quick and times == 1 then
  local outcome = quick(KEYS[1], ARGV[1], at, now, cost)
  if outcome then
    return pack('<dI4', now, 1) .. outcome
  end
end
