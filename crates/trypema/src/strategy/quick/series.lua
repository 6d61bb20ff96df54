-- What series.lua does in the usual case, in one go: a short string, nothing wrong with the clock or the window, and a
-- cost that fits. `at` is where the head is in `text`. Returns what was used, and what comes after the
-- strategy's prefix; nothing where series.lua has to look.
local function advance(text, at, now, window, group, capacity, cost)
  local first, newest, open, closed, oldest, through, stored = 0, 0, 0, 0, 0, 0, 0
  local buckets = at
  -- A string that is not whole, or will not be with one bucket more.
  if #text + 67 > 1024 then
    return
  end
  if #text > 0 then
    local stretch, horizon
    first, stretch, open, horizon, at = unpack('<I7I4I7I6', text, at)
    newest = first + stretch
    if horizon >= 2 ^ 47 then
      local start, room, width
      horizon = horizon - 2 ^ 47
      closed, oldest, through, start, stored, room, width, at = unpack('<I7I7I7I3I3I3B', text, at)
      if start > 0 or room > stored or width > 6 then
        return
      end
    end
    if horizon ~= window or newest > now then
      return
    end
    buckets = at
  end
  if now >= newest + window then
    open, closed, through, stored, text = 0, 0, 0, 0, ''
  elseif closed > 0 and now >= oldest + window then
    local gone, last
    repeat
      gone, last, at = unpack('<I6I6', text, buckets)
      closed, stored, buckets = (through - last) % 2 ^ 48, stored - 1, at
      if stored > 0 then
        gone = unpack('<I6', text, buckets)
      end
      oldest = newest - (newest - gone) % 2 ^ 48
    until stored == 0 or now < oldest + window
  end
  local used = closed + open
  if cost > capacity - used or cost == 0 or used >= 2 ^ 48 then
    return
  end
  local pushed = ''
  if open > 0 and now - first < group then
    open = open + cost
  else
    if open > 0 then
      if stored == 0 then
        oldest = newest
      end
      through = (through + open) % 2 ^ 48
      pushed = pack('<I6I6', newest % 2 ^ 48, through)
      closed, stored = closed + open, stored + 1
    end
    first, open = now, cost
  end
  if stored == 0 then
    return used, pack('<I7I4I7I6', first, now - first, open, window)
  end
  return used, pack('<I7I4I7I6I7I7I7I3I3I3B', first, now - first, open, window + 2 ^ 47, closed, oldest,
    through, 0, stored, stored, 6) .. text:sub(buckets) .. pushed
end
