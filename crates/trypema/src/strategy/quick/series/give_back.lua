-- Removes the unspent units of `lease` from the closed bucket that counted them, in the usual case of series.lua:
-- few are newer. Returns the number of buckets to keep, those to write after them, `closed` and `through`.

-- Returns the newest call in the closed bucket at `at`, and the units counted up to it, both wrapping.
local function bucket(key, text, at)
  if at + 12 <= #text then
    return unpack('<I6I6', text, at + 1)
  end
  return unpack('<I6I6', call('GETRANGE', key, at, at + 11))
end

return function(key, text, base, lease, group, newest, closed, through, start, stored, room)
  local moment, index, before, stamp, last = lease.recorded, stored, closed, 0, 0
  -- The bucket that counted them is the first that ends at `moment` or later.
  while index > 0 do
    stamp, last = bucket(key, text, base + (start + index - 1) % room * 12)
    if newest - (newest - stamp) % TIME_WRAP < moment then
      before = (through - last) % 2 ^ 48
      break
    end
    index = index - 1
    if stored - index > 16 then
      return UNUSUAL
    end
  end
  if index == stored then
    return stored, '', closed, through
  end
  stamp, last = bucket(key, text, base + (start + index) % room * 12)
  if newest - (newest - stamp) % TIME_WRAP - moment >= group then
    return stored, '', closed, through
  end
  local back, tail = math.min(lease.unspent, before - (through - last) % 2 ^ 48), ''
  for i = index, stored - 1 do
    stamp, last = bucket(key, text, base + (start + i) % room * 12)
    tail = tail .. pack('<I6I6', stamp, (last - back) % 2 ^ 48)
  end
  return index, tail, closed - back, (through - back) % 2 ^ 48
end
