-- concurrency.lua in the usual case of a reservation. Returns the outcome of reserving `cost` in a table that holds
-- `held` units until `latest`; or UNUSUAL.
return function(argument, at, now, cost, held, latest)
  local limit, longest_hold = unpack('<dd', argument, at)
  -- No units need no entry, and an entry that was made in the future is repaired.
  if cost == 0 or latest > now + 2 * longest_hold then
    return UNUSUAL
  end
  return pack('<BBdd', cost <= limit - held and 1 or 0, 1, held, latest)
end
