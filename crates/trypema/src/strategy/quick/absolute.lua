-- absolute.lua in the usual case. Returns the outcome and what comes after the limit in `argument`; nothing, and
-- nothing is written, where absolute.lua has to look.
local function quick(key, argument, at, now, cost)
  local capacity, window, group, sticky, after = struct.unpack('<dddB', argument, at)
  local text = redis.call('GETRANGE', key, '0', '1023')
  if #text > 0 then
    if not is_state(text, 65, 32) then
      return
    end
    local _, stored_capacity = struct.unpack('<BI7', text)
    -- Whether something still counts decides which capacity holds.
    if sticky == 1 and stored_capacity ~= capacity then
      return
    end
  end
  local used, series = advance(text, 9, now, window, math.max(group, 1), capacity, cost)
  if not used then
    return
  end
  redis.call('SET', key, struct.pack('<BI7', 65, capacity) .. series, 'PX', time_to_live(now + window, now))
  return struct.pack('<Bdddddd', 1, capacity, used, now, 0, now, now + window), after
end
