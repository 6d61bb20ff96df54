-- Forgets the closed buckets whose newest call is at `moment` or earlier, in the usual case of series.lua: in a long
-- state they are read one by one, 16 at most. Returns `closed`, `oldest`, `start` and `stored`.
local bucket = define('quick/series/bucket')

return function(key, text, base, moment, newest, closed, oldest, through, start, stored, room)
  local is_long = #text >= WHOLE
  local most = is_long and 16 or stored
  local stamp, last = bucket(key, text, base + start * 12)
  repeat
    closed, start, stored, most = (through - last) % 2 ^ 48, (start + 1) % room, stored - 1, most - 1
    if stored > 0 then
      stamp, last = bucket(key, text, base + start * 12)
      oldest = newest - (newest - stamp) % TIME_WRAP
    end
  until stored == 0 or moment < oldest or most == 0
  -- A long state that is mostly unused is written anew.
  if is_long and (moment >= oldest or room > 128 and stored * 4 < room) then
    return UNUSUAL
  end
  return closed, oldest, start, stored
end
