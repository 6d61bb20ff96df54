-- absolute.lua in the usual case. Returns the same as quick/fixed_window.lua.
local record = define('quick/series')

return function(key, argument, at, now, cost, lease)
  local capacity, window, group, sticky, after = unpack('<dddB', argument, at)
  if lease then
    after = lease:read(argument, after, window)
    if after == UNUSUAL then
      return UNUSUAL
    end
  end
  local text = call('GETRANGE', key, '0', '1023')
  if #text > 0 then
    if #text < 32 then
      return UNUSUAL
    end
    local tag, stored_capacity = unpack('<BI7', text)
    -- Whether something still counts decides which capacity holds.
    if tag ~= STATE_LETTER or sticky == 1 and stored_capacity ~= capacity then
      return UNUSUAL
    end
  end
  local prefix = pack('<BI7', STATE_LETTER, capacity)
  local used, units, recorded = record(key, text, prefix, prefix, now, window, group, capacity, cost, lease)
  if used == UNUSUAL then
    return UNUSUAL
  end
  return pack('<Bdddddd', 1, capacity, used, now, 0, recorded, recorded + window), after, units, recorded
end
