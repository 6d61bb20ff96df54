-- The refund of token_bucket.lua in the usual case: the limits and the clock are as they were, and nothing is pending.
-- Returns the units refunded; or UNUSUAL, before it writes anything.
return function(key, argument, at, now, units, recorded, _, number)
  local count
  count, at = unpack('<B', argument, at)
  local text = call('GET', key)
  if not text then
    return 0
  end
  if #text < 13 + 15 * count then
    return UNUSUAL
  end
  local tag, counts, last, stored_number, place = unpack('<BBdI3', text)
  if tag ~= STATE_LETTER or counts ~= count % 16 or last > now or recorded > now or stored_number ~= number then
    return UNUSUAL
  end
  local written, refunded, paid_after = '', units, 0
  for _ = 1, count do
    local capacity, refill, unit, drain, owed, stored_unit, stored_digest
    capacity, refill, unit, drain, at = unpack('<dddd', argument, at)
    owed, stored_unit, stored_digest, place = unpack('<I7I6I2', text, place)
    -- A debt that is marked as overdrawn is larger than any other.
    local full, back = capacity * unit, 0
    if stored_unit ~= unit or stored_digest ~= drain % DRAIN_DIGESTS or owed > full then
      return UNUSUAL
    end
    -- Refilling has already paid off a part of the debt, and of these units.
    if now - last >= refill then
      owed = 0
    else
      owed = math.max(0, owed - (now - last) * drain)
    end
    if now - recorded < refill then
      back = math.min(owed, math.max(0, math.min(units * unit, full) - (now - recorded) * drain))
    end
    owed, refunded = owed - back, math.min(refunded, math.floor(back / unit))
    paid_after = math.max(paid_after, ceil(owed / drain))
    written = written .. pack('<I7I6I2', owed, unit, stored_digest)
  end
  if paid_after == 0 then
    call('DEL', key)
  else
    written = pack('<BBdI3', STATE_LETTER, count % 16, now, number) .. written
    call('SET', key, written, 'PX', time_to_live(now + paid_after, now))
  end
  return refunded
end
