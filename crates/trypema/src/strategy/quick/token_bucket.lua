-- token_bucket.lua in the usual case of a take: the limits and the clock are as they were, and nothing is pending.
-- Returns the same as quick/fixed_window.lua.
return function(key, argument, at, now, cost, lease)
  if lease then
    return UNUSUAL
  end
  local count
  count, at = unpack('<B', argument, at)
  local text = call('GET', key)
  local last, number, place, is_owing = 0, 0, 0, false
  if text then
    if #text < 13 + 15 * count then
      return UNUSUAL
    end
    local tag, counts
    tag, counts, last, number, place = unpack('<BBdI3', text)
    if tag ~= STATE_LETTER or counts ~= count % 16 or last > now then
      return UNUSUAL
    end
  end
  local written, owed_before, failed, paid_after = '', '', 255, 0
  for i = 1, count do
    local capacity, refill, unit, drain, next_at = unpack('<dddd', argument, at)
    at = next_at
    local owed, digest = 0, drain % DRAIN_DIGESTS
    if text then
      local stored_unit, stored_digest
      owed, stored_unit, stored_digest, place = unpack('<I7I6I2', text, place)
      -- A debt that is marked as overdrawn is larger than any other.
      if stored_unit ~= unit or stored_digest ~= digest or owed > capacity * unit then
        return UNUSUAL
      end
      is_owing = is_owing or owed > 0
      if now - last >= refill then
        owed = 0
      else
        owed = math.max(0, owed - (now - last) * drain)
      end
    end
    if cost > capacity or cost * unit > capacity * unit - owed then
      failed = math.min(failed, i - 1)
    end
    local after = owed + cost * unit
    paid_after = math.max(paid_after, ceil(after / drain))
    written = written .. pack('<I7I6I2', after, unit, digest)
    owed_before = owed_before .. pack('<d', owed)
  end
  if failed < 255 and cost > 0 then
    return pack('<BBddd', 0, failed, now, -1, -1) .. owed_before, at
  end
  if cost > 0 then
    if not is_owing then
      number = now % COUNTS
    end
    written = pack('<BBdI3', STATE_LETTER, count % 16, now, number) .. written
    call('SET', key, written, 'PX', time_to_live(now + paid_after, now))
  end
  return pack('<BBddd', 1, 0, now, -1, -1) .. owed_before, at, cost, now, 0, number
end
