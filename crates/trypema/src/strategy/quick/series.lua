-- What series.lua does in the usual case, in one go: the clock and the window are as they were, counts are narrow, and the
-- cost fits. series.lua says how a state is laid out. There are few functions, because each is made anew in every script call.

-- The newest call in the closed bucket that is `at` bytes into a state, and the units counted up to it, both wrapping.
local function bucket(key, text, at)
  if at + 12 <= #text then
    return unpack('<I6I6', text, at + 1)
  end
  return unpack('<I6I6', call('GETRANGE', key, at, at + 11))
end

-- Counts `cost`, or what is granted of `lease`, in the series after the prefix of the state `text`, and writes it: with `prefix`, or
-- with `fresh` if nothing was used. Returns what was used, what was counted, and where; nothing, and nothing is written,
-- where series.lua has to look.
local function advance(key, text, prefix, fresh, now, window, group, capacity, cost, lease)
  local first, newest, open, closed, oldest, through, start, stored, room = 0, 0, 0, 0, 0, 0, 0, 0, 0
  -- A long state is changed in place. Buckets at its ends are read one by one, 16 at most: series.lua searches for the others.
  local base, is_long = 0, #text >= 1024
  if #text > 0 then
    local stretch, horizon, width
    first, stretch, open, horizon, base = unpack('<I7I4I7I6', text, #prefix + 1)
    newest = first + stretch
    if horizon >= 2 ^ 47 then
      horizon = horizon - 2 ^ 47
      closed, oldest, through, start, stored, room, width, base = unpack('<I7I7I7I3I3I3B', text, base)
    end
    base = base - 1
    if horizon ~= window or newest > now + window or width == 7 then
      return
    end
    -- A short state has no spare room, and gets some when it becomes long.
    if not is_long and (start > 0 or room > stored or #text + 12 > 1024) then
      return
    end
  end

  -- What has left the window is forgotten.
  if now >= newest + window then
    first, newest, open, closed, stored = 0, 0, 0, 0, 0
  elseif closed > 0 and now >= oldest + window then
    local most = is_long and 16 or stored
    local stamp, last = bucket(key, text, base + start * 12)
    repeat
      closed, start, stored, most = (through - last) % 2 ^ 48, (start + 1) % room, stored - 1, most - 1
      if stored > 0 then
        stamp, last = bucket(key, text, base + start * 12)
        oldest = newest - (newest - stamp) % 2 ^ 48
      end
    until stored == 0 or now < oldest + window or most == 0
    -- A long state that is mostly unused is written anew.
    if is_long and (now >= oldest + window or room > 128 and stored * 4 < room) then
      return
    end
  end
  if is_long and stored == 0 then
    return
  end

  -- So many buckets are kept as they are, and `tail` is written after them.
  local kept, tail = stored, ''
  if lease and lease.unspent > 0 then
    local moment = lease.recorded
    if moment >= first and moment <= newest then
      open = open - math.min(lease.unspent, open)
    elseif moment < first then
      -- The bucket that counted them is the first that ends at `moment` or later. Mostly few are newer.
      local index, before, stamp, last = stored, closed, 0, 0
      while index > 0 do
        stamp, last = bucket(key, text, base + (start + index - 1) % room * 12)
        if newest - (newest - stamp) % 2 ^ 48 < moment then
          before = (through - last) % 2 ^ 48
          break
        end
        index = index - 1
        if stored - index > 16 then
          return
        end
      end
      if index < stored then
        stamp, last = bucket(key, text, base + (start + index) % room * 12)
        local back = math.min(lease.unspent, before - (through - last) % 2 ^ 48)
        if newest - (newest - stamp) % 2 ^ 48 - moment < group then
          for i = index, stored - 1 do
            stamp, last = bucket(key, text, base + (start + i) % room * 12)
            tail = tail .. pack('<I6I6', stamp, (last - back) % 2 ^ 48)
          end
          kept, closed, through = index, closed - back, (through - back) % 2 ^ 48
        end
      end
    end
  end

  local used = closed + open
  if used == 0 then
    prefix, newest, stored, kept, tail = fresh, 0, 0, 0, ''
  end
  local units, stamp = cost, now
  if lease then
    units, stamp = lease.grant(math.max(0, capacity - used))
    stamp = math.min(stamp, now + window)
  end
  if units == 0 or units > capacity - used or used >= 2 ^ 48 then
    return
  end
  stamp = math.max(stamp, newest)
  if open > 0 and stamp - first < group then
    open = open + units
  else
    if open > 0 then
      if stored == 0 then
        oldest = newest
      end
      through = (through + open) % 2 ^ 48
      tail = tail .. pack('<I6I6', newest % 2 ^ 48, through)
      closed, stored = closed + open, stored + 1
    end
    first, open = stamp, units
  end

  local head, ttl = prefix .. pack('<I7I4I7', first, stamp - first, open), ceil((stamp + window - now) / 1000) + extra_ms
  if not is_long then
    if stored == 0 then
      head = head .. pack('<I6', window)
    else
      local from = base + start * 12
      head = head .. pack('<I6I7I7I7I3I3I3B', window + 2 ^ 47, closed, oldest, through, 0, stored, stored, 6)
        .. text:sub(from + 1, from + kept * 12) .. tail
    end
    call('SET', key, head, 'PX', ttl)
    return used, units, stamp
  end
  if stored == 0 or stored > room then
    return
  end
  local slot = (start + kept) % room
  local fitting = (room - slot) * 12
  if #tail > 0 then
    call('SETRANGE', key, base + slot * 12, tail:sub(1, fitting))
  end
  if #tail > fitting then
    call('SETRANGE', key, base, tail:sub(fitting + 1))
  end
  call('SETRANGE', key, '0', head
    .. pack('<I6I7I7I7I3I3I3B', window + 2 ^ 47, closed, oldest, through, start, stored, room, 6))
  call('PEXPIRE', key, ttl)
  return used, units, stamp
end
