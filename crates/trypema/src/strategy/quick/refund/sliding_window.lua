-- The refund of sliding_window.lua in the usual case: the current window counted the units. Returns the units
-- refunded; or UNUSUAL, before it writes anything.
return function(key, argument, at, now, units, recorded, window_end, count)
  local _, window = unpack('<dd', argument, at)
  local text = call('GET', key)
  if not text then
    return 0
  end
  if #text < 26 then
    return UNUSUAL
  end
  local tag, ends_at, previous, current, stored_window, stored_count = unpack('<BdI4I4I6I3', text)
  local starts_at = now - now % window
  if tag ~= STATE_LETTER or stored_window ~= window or ends_at ~= starts_at + window or window_end ~= ends_at
    or count ~= stored_count then
    return UNUSUAL
  end
  units = math.min(units, current)
  current = current - units
  if current + previous == 0 then
    call('DEL', key)
  else
    local fresh_from = ends_at + (current > 0 and window or 0)
    local written = pack('<BdI4I4I6I3', STATE_LETTER, ends_at, previous, current, window, count)
    call('SET', key, written, 'PX', time_to_live(fresh_from, now))
  end
  return units
end
