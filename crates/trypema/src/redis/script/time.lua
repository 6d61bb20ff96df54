-- The time, read once: the given one or, for -1, the server's. Given times are the callers' own, and their clocks may
-- differ by a minute: keys live that much longer.
local extra_ms = 60000
if now < 0 then
  local time = call('TIME')
  now, extra_ms = time[1] * 1000000 + time[2], 0
end

-- Returns for how many whole milliseconds a key must live that matters until `moment`.
local function time_to_live(moment, now)
  local ms = ceil((moment - now) / 1000)
  return (ms < 1 and 1 or ms) + extra_ms
end
