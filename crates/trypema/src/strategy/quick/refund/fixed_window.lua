-- The refund of fixed_window.lua in the usual case: the windows are aligned. Returns the units refunded; or UNUSUAL,
-- before it writes anything.
return function(key, argument, at, now, units, recorded, window_end, count)
  local _, window = unpack('<dd', argument, at)
  local text = call('GET', key)
  if not text then
    return 0
  end
  if window == 0 or #text < 20 then
    return UNUSUAL
  end
  local tag, ends_at, counted, stored_count = unpack('<BddI3', text)
  if tag ~= STATE_LETTER then
    return UNUSUAL
  end
  if now >= ends_at or recorded + window <= now or window_end ~= ends_at or count ~= stored_count then
    return 0
  end
  if units >= counted then
    call('DEL', key)
    return counted
  end
  call('SET', key, pack('<BddI3', STATE_LETTER, ends_at, counted - units, count), 'KEEPTTL')
  return units
end
