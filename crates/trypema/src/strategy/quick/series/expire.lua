-- Forgets the closed buckets whose newest call is at `moment` or earlier, in the usual case of series.lua: in a long
-- state they are read one by one, 16 at most. Returns `closed`, `oldest`, `start` and `stored`.
return function(key, text, base, moment, newest, closed, oldest, through, start, stored, room)
  local is_long = #text >= WHOLE
  local most = is_long and 16 or stored
  while stored > 0 do
    local at, stamp, last = base + start * 12, 0, 0
    if at + 12 <= #text then
      stamp, last = unpack('<I6I6', text, at + 1)
    else
      stamp, last = unpack('<I6I6', call('GETRANGE', key, at, at + 11))
    end
    oldest = newest - (newest - stamp) % TIME_WRAP
    if moment < oldest or most == 0 then
      break
    end
    closed, start, stored, most = (through - last) % 2 ^ 48, (start + 1) % room, stored - 1, most - 1
  end
  -- A long state that is mostly unused is written anew.
  if is_long and (moment >= oldest or room > 128 and stored * 4 < room) then
    return UNUSUAL
  end
  return closed, oldest, start, stored
end
