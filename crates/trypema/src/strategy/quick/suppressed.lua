-- suppressed.lua in the usual case: every call was accepted so far, and this one fits under the soft limit. Returns
-- the outcome and what comes after the limit in `argument`; nothing, and nothing is written, where suppressed.lua has
-- to look.
local function quick(key, argument, at, now, cost, lease)
  -- A lease is left to suppressed.lua.
  if lease then
    return
  end
  local soft, window, group, _, sticky, after = unpack('<ddddB', argument, at)
  local text = call('GETRANGE', key, '0', '1023')
  local drawn = 0
  if #text > 0 then
    if #text < 37 then
      return
    end
    local tag, stored_soft, stored_drawn, series = unpack('<BI7I4B', text)
    if tag ~= 83 or series > 1 or sticky == 1 and stored_soft ~= soft then
      return
    end
    drawn = stored_drawn
  end
  local prefix, fresh = pack('<BI7I4B', 83, soft, drawn, 1), pack('<BI7I4B', 83, soft, 0, 1)
  local used, _, recorded = advance(key, text, prefix, fresh, now, window, group, soft, cost)
  if not used then
    return
  end
  return pack('<Bddddddd', 1, 0, soft, used, now, 0, recorded, recorded + window), after, cost, recorded
end
