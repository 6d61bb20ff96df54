-- The refund of token_bucket.lua in the usual case: the limits and the clock are as they were, and nothing is pending.
-- Returns the units refunded; nothing, and nothing is written, where token_bucket.lua has to look.
local function quick_refund(key, argument, at, now, units, recorded)
  local count
  count, at = unpack('<B', argument, at)
  local text = call('GET', key)
  if not text then
    return 0
  end
  if #text < 10 + 14 * count then
    return
  end
  local tag, counts, last, place = unpack('<BBd', text)
  if tag ~= 84 or counts ~= count % 16 or last > now or recorded > now then
    return
  end
  local written, refunded, paid_after = '', units, 0
  for _ = 1, count do
    local capacity, refill, unit, drain, owed, stored_unit
    capacity, refill, unit, drain, at = unpack('<dddd', argument, at)
    owed, stored_unit, place = unpack('<I7I7', text, place)
    -- A debt that is marked as overdrawn is larger than any other.
    if stored_unit ~= unit or owed >= 2 ^ 55 then
      return
    end
    -- Refilling has already paid off a part of the debt, and of these units.
    local full, back = capacity * unit, 0
    if now - last >= refill then
      owed = 0
    else
      owed = math.max(0, math.min(owed, full) - (now - last) * drain)
    end
    if now - recorded < refill then
      back = math.min(owed, math.max(0, math.min(units * unit, full) - (now - recorded) * drain))
    end
    owed, refunded = owed - back, math.min(refunded, math.floor(back / unit))
    paid_after = math.max(paid_after, ceil(owed / drain))
    written = written .. pack('<I7I7', owed, unit)
  end
  if paid_after == 0 then
    call('DEL', key)
  else
    written = pack('<BBd', 84, count % 16, now) .. written
    call('SET', key, written, 'PX', time_to_live(now + paid_after, now))
  end
  return refunded
end
