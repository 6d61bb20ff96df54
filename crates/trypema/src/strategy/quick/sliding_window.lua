-- sliding_window.lua in the usual case: the clock and the window are as they were, and steps can be counted at once.
-- Returns the same as quick/fixed_window.lua.
return function(key, argument, at, now, cost, lease)
  local limit, window, after = unpack('<dd', argument, at)
  if lease then
    after = lease:read(argument, after, 2 * window)
    if after == UNUSUAL then
      return UNUSUAL
    end
  end
  local text = call('GET', key)
  local starts_at = now - now % window
  local ends_at, previous, current, count, stored_window = starts_at + window, 0, 0, 0, 0
  if text then
    if #text < 26 then
      return UNUSUAL
    end
    local tag, stored_end, stored_previous, stored_current
    tag, stored_end, stored_previous, stored_current, stored_window, count = unpack('<BdI4I4I6I3', text)
    if tag ~= STATE_LETTER or stored_end > ends_at or window > 2 ^ 33 then
      return UNUSUAL
    end
    if stored_end > starts_at then
      previous, current = stored_previous, stored_current
    elseif stored_end + window > starts_at then
      previous = stored_current
    end
    if lease and lease.unspent > 0 and lease.count == count then
      if stored_end > starts_at and lease.window_end == stored_end then
        current = current - math.min(lease.unspent, current)
      elseif lease.window_end == (stored_end > starts_at and stored_end - stored_window or stored_end) then
        previous = previous - math.min(lease.unspent, previous)
      end
    end
  end
  local used = current
  if previous > 0 then
    used = used + ceil(previous * (STEPS - math.floor((now - starts_at) * STEPS / window)) / STEPS)
  end
  if lease then
    cost = lease:grant(math.max(0, limit - used))
    if cost == 0 then
      return UNUSUAL
    end
  end
  if cost > limit - used and cost > 0 then
    return pack('<Bddd', 0, ends_at, previous, current), after
  end
  if cost > 0 then
    if previous + current == 0 then
      count = now % COUNTS
    elseif stored_window ~= window then
      count = (count + 1) % COUNTS
    end
    local written = pack('<BdI4I4I6I3', STATE_LETTER, ends_at, previous, current + cost, window, count)
    call('SET', key, written, 'PX', time_to_live(ends_at + window, now))
  end
  return pack('<Bddd', 1, ends_at, previous, current), after, cost, now, ends_at, count
end
