-- absolute.lua in the usual case. Returns the outcome, what comes after the limit in `argument`, the units of a lease, and where
-- they are recorded; nothing, and nothing is written, where absolute.lua has to look.
local function quick(key, argument, at, now, cost, lease)
  local capacity, window, group, sticky, after = unpack('<dddB', argument, at)
  if lease then
    after = lease.read(after, window)
    if not after then
      return
    end
  end
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
  local prefix = pack('<BI7', 65, capacity)
  local used, units, recorded = advance(key, text, prefix, prefix, now, window, group, capacity, cost, lease)
  if not used then
    return
  end
  return pack('<Bdddddd', 1, capacity, used, now, 0, recorded, recorded + window), after, units, recorded
end
