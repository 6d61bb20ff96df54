-- fixed_window.lua in the usual case: the clock and the window are as they were. Returns the outcome, the position
-- after the limit in `argument`, the units of a lease, and their origin: the time at which they are recorded, the
-- end of the window and the number of the count. In any other case returns UNUSUAL, before it writes anything.
return function(key, argument, at, now, cost, lease)
  local limit, window, after = unpack('<dd', argument, at)
  local starts_at, ends_at
  if window > 0 then
    starts_at = now - now % window
    ends_at = starts_at + window
  else
    local b1, b2, b3, b4
    window, b1, b2, b3, b4, after = unpack('<ddddd', argument, after)
    if now < b1 or now >= b4 then
      return UNUSUAL
    elseif now < b2 then
      starts_at, ends_at = b1, b2
    elseif now < b3 then
      starts_at, ends_at = b2, b3
    else
      starts_at, ends_at = b3, b4
    end
  end
  if lease then
    after = lease:read(argument, after, window)
    if after == UNUSUAL then
      return UNUSUAL
    end
  end
  local text, used, count = call('GET', key), 0, 0
  if text then
    if #text < 20 then
      return UNUSUAL
    end
    local tag, stored_end, counted
    tag, stored_end, counted, count = unpack('<BddI3', text)
    if tag ~= STATE_LETTER or stored_end > ends_at then
      return UNUSUAL
    end
    if stored_end > starts_at then
      used = counted
    end
    if lease and now < stored_end and lease.window_end == stored_end and lease.count == count then
      used = used - math.min(lease.unspent, used)
    end
  end
  if lease then
    cost = lease:grant(math.max(0, limit - used))
    if cost == 0 then
      return UNUSUAL
    end
  end
  if cost > limit - used and cost > 0 then
    return pack('<Bdd', 0, used, ends_at), after
  end
  if cost > 0 then
    if used == 0 then
      count = now % COUNTS
    end
    call('SET', key, pack('<BddI3', STATE_LETTER, ends_at, used + cost, count), 'PX', time_to_live(ends_at, now))
  end
  return pack('<Bdd', 1, used, ends_at), after, cost, now, ends_at, count
end
