-- absolute.lua in the usual case. Returns the outcome and what comes after the limit in `argument`; nothing, and
-- nothing is written, where absolute.lua has to look.
local function quick(key, argument, at, now, cost)
  local capacity, window, group, sticky, after = unpack('<dddB', argument, at)
  local text = call('GETRANGE', key, '0', '1023')
  if #text > 0 then
    if #text < 32 then
      return
    end
    local tag, stored_capacity = unpack('<BI7', text)
    -- Whether something still counts decides which capacity holds.
    if tag ~= 65 or sticky == 1 and stored_capacity ~= capacity then
      return
    end
  end
  local used, series = advance(text, 9, now, window, group, capacity, cost)
  if not used then
    return
  end
  call('SET', key, pack('<BI7', 65, capacity) .. series, 'PX', ceil(window / 1000) + extra_ms)
  return pack('<Bdddddd', 1, capacity, used, now, 0, now, now + window), after
end
