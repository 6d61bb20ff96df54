-- The refund of absolute.lua in the usual case: the newest bucket counted the units, and nothing has left the window.
-- Returns the units refunded; or UNUSUAL, before it writes anything.
return function(key, argument, at, now, units, recorded)
  local _, window = unpack('<dd', argument, at)
  local text = call('GETRANGE', key, '0', '47')
  if text == '' then
    return 0
  end
  if #text < 32 or text:byte() ~= STATE_LETTER then
    return UNUSUAL
  end
  local first, stretch, open, horizon = unpack('<I7I4I7I6', text, 9)
  local newest, closed, oldest = first + stretch, 0, first + stretch
  if horizon >= 2 ^ 47 then
    horizon = horizon - 2 ^ 47
    closed, oldest = unpack('<I7I7', text, 33)
  end
  units = math.min(units, open)
  if horizon ~= window or newest > now + window or now >= oldest + window or recorded < first or recorded > newest
    or now >= recorded + window then
    return UNUSUAL
  end
  if units == closed + open then
    call('DEL', key)
  else
    -- Nothing else of the state changes.
    call('SETRANGE', key, '19', pack('<I7', open - units))
  end
  return units
end
