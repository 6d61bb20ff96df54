-- token_bucket.lua in the usual case: the limits and the clock are as they were, and nothing is pending. Returns the
-- outcome and what comes after the limits in `argument`; nothing, and nothing is written, where token_bucket.lua has to
-- look.
local function quick(key, argument, at, now, cost)
  local count
  count, at = struct.unpack('<B', argument, at)
  local text = redis.call('GET', key)
  local last, place = 0, 0
  if text then
    if not is_state(text, 84, 10 + 14 * count) then
      return
    end
    local _, counts
    _, counts, last, place = struct.unpack('<BBd', text)
    if counts ~= count or last > now then
      return
    end
  end
  local written, owed_before, failed, paid_after = '', '', 255, 0
  for i = 1, count do
    local capacity, refill, unit, drain, next_at = struct.unpack('<dddd', argument, at)
    at = next_at
    local owed = 0
    if text then
      local stored_unit
      owed, stored_unit, place = struct.unpack('<I7I7', text, place)
      if stored_unit ~= unit then
        return
      end
      if now - last >= refill then
        owed = 0
      else
        owed = math.max(0, math.min(owed, capacity * unit) - (now - last) * drain)
      end
    end
    if cost > capacity or cost * unit > capacity * unit - owed then
      failed = math.min(failed, i - 1)
    end
    local after = owed + cost * unit
    paid_after = math.max(paid_after, math.ceil(after / drain))
    written = written .. struct.pack('<I7I7', after, unit)
    owed_before = owed_before .. struct.pack('<d', owed)
  end
  if failed < 255 and cost > 0 then
    return struct.pack('<BBddd', 0, failed, now, -1, -1) .. owed_before, at
  end
  if cost > 0 then
    written = struct.pack('<BBd', 84, count, now) .. written
    redis.call('SET', key, written, 'PX', time_to_live(now + paid_after, now))
  end
  return struct.pack('<BBddd', 1, 0, now, -1, -1) .. owed_before, at
end
