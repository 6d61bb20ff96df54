-- series.lua in the usual case: the clock and the window are as they were, counts are narrow, and the cost fits.
-- series/ring.lua describes the layout. Four steps share the fields of the series as locals, because a table of the
-- fields would take a fourth of the call's time. The rarely needed parts of the steps are functions of their own.

-- Counts `cost`, or the units that `lease` is granted, in the series behind the prefix of the state `text`. Writes
-- the state with `prefix`, or with `fresh` if nothing was used. Returns the units used before, the units counted,
-- and their time; or UNUSUAL, before it writes anything.
return function(key, text, prefix, fresh, now, window, group, capacity, cost, lease)
  local first, newest, open, closed, oldest, through, start, stored, room, base = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  -- Read what the last step below, or series/save.lua, wrote.
  if #text > 0 then
    local open_span, horizon, width
    first, open_span, open, horizon, base = unpack('<I7I4I7I6', text, #prefix + 1)
    if horizon >= HAS_CLOSED then
      horizon = horizon - HAS_CLOSED
      closed, oldest, through, start, stored, room, width, base = unpack('<I7I7I7I3I3I3B', text, base)
    end
    newest, base = first + open_span, base - 1
    if horizon ~= window or newest > now + window or width == 7 then
      return UNUSUAL
    end
    -- A short state has no spare room, and gets some when it becomes long.
    if #text < WHOLE and (start > 0 or room > stored or #text + 12 > WHOLE) then
      return UNUSUAL
    end
  end

  -- Expire.
  if now >= newest + window then
    first, newest, open, closed, stored = 0, 0, 0, 0, 0
  elseif closed > 0 and now >= oldest + window then
    closed, oldest, start, stored =
      define('quick/series/expire')(key, text, base, now - window, newest, closed, oldest, through, start, stored, room)
  end
  -- A long state is changed in place, and has closed buckets.
  local is_long = #text >= WHOLE
  if closed == UNUSUAL or is_long and stored == 0 then
    return UNUSUAL
  end

  -- Record. So many buckets are kept as they are, and `tail` is written after them.
  local kept, tail = stored, ''
  if lease and lease.unspent > 0 then
    if lease.recorded >= first then
      open = open - (lease.recorded <= newest and math.min(lease.unspent, open) or 0)
    elseif stored > 0 then
      kept, tail, closed, through =
        define('quick/series/give_back')(key, text, base, lease, group, newest, closed, through, start, stored, room)
      if kept == UNUSUAL then
        return UNUSUAL
      end
    end
  end

  local used, units, stamp = closed + open, cost, now
  if used == 0 then
    prefix, newest, stored, kept, tail = fresh, 0, 0, 0, ''
  end
  if lease then
    units, stamp = lease:grant(math.max(0, capacity - used))
    stamp = math.min(stamp, now + window)
  end
  if units == 0 or units > capacity - used or used >= 2 ^ 48 then
    return UNUSUAL
  end
  if stamp < newest then
    stamp = newest
  end
  if open > 0 and stamp - first < group then
    open = open + units
  else
    if open > 0 then
      if stored == 0 then
        oldest = newest
      end
      through = (through + open) % 2 ^ 48
      tail = tail .. pack('<I6I6', newest % TIME_WRAP, through)
      closed, stored = closed + open, stored + 1
    end
    first, open = stamp, units
  end

  -- Write.
  local head, ttl = prefix .. pack('<I7I4I7', first, stamp - first, open), time_to_live(stamp + window, now)
  if is_long then
    if stored == 0 or stored > room then
      return UNUSUAL
    end
    head = head .. pack('<I6I7I7I7I3I3I3B', window + HAS_CLOSED, closed, oldest, through, start, stored, room, 6)
    local slot = (start + kept) % room
    local fitting = (room - slot) * 12
    if #tail > 0 then
      call('SETRANGE', key, base + slot * 12, tail:sub(1, fitting))
    end
    if #tail > fitting then
      call('SETRANGE', key, base, tail:sub(fitting + 1))
    end
    call('SETRANGE', key, '0', head)
    call('PEXPIRE', key, ttl)
  elseif stored == 0 then
    call('SET', key, head .. pack('<I6', window), 'PX', ttl)
  else
    head = head .. pack('<I6I7I7I7I3I3I3B', window + HAS_CLOSED, closed, oldest, through, 0, stored, stored, 6)
    local from = base + start * 12
    call('SET', key, head .. text:sub(from + 1, from + kept * 12) .. tail, 'PX', ttl)
  end
  return used, units, stamp
end
