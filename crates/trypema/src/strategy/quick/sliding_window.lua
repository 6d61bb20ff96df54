-- sliding_window.lua in the usual case: the clock and the window are as they were, and steps can be counted at once.
-- Returns the outcome, what comes after the limit in `argument`, and the units of a lease; nothing, and nothing is
-- written, where sliding_window.lua has to look.
local function quick(key, argument, at, now, cost, lease)
  local limit, window, after = unpack('<dd', argument, at)
  if lease then
    after = lease.read(after, 2 * window)
    if not after then
      return
    end
  end
  local text = call('GET', key)
  local starts_at = now - now % window
  local ends_at, previous, current = starts_at + window, 0, 0
  if text then
    if #text < 23 then
      return
    end
    local tag, stored_end, stored_previous, stored_current = unpack('<BdI4I4', text)
    if tag ~= 87 or stored_end > ends_at or window > 2 ^ 33 then
      return
    end
    if stored_end > starts_at then
      previous, current = stored_previous, stored_current
    elseif stored_end + window > starts_at then
      previous = stored_current
    end
    if lease and lease.unspent > 0 then
      -- Under a limit of another window it would be taken from others.
      if stored_end % window > 0 then
        return
      end
      if lease.recorded >= starts_at and lease.recorded < ends_at then
        current = current - math.min(lease.unspent, current)
      elseif lease.recorded < starts_at and lease.recorded + window >= starts_at then
        previous = previous - math.min(lease.unspent, previous)
      end
    end
  end
  local used = current
  if previous > 0 then
    used = used + ceil(previous * (2 ^ 20 - math.floor((now - starts_at) * 2 ^ 20 / window)) / 2 ^ 20)
  end
  if lease then
    cost = lease.grant(math.max(0, limit - used))
    if cost == 0 then
      return
    end
  end
  if cost > limit - used and cost > 0 then
    return pack('<Bddd', 0, ends_at, previous, current), after
  end
  if cost > 0 then
    local written = pack('<BdI4I4I6', 87, ends_at, previous, current + cost, window)
    call('SET', key, written, 'PX', time_to_live(ends_at + window, now))
  end
  return pack('<Bddd', 1, ends_at, previous, current), after, cost
end
