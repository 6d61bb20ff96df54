-- suppressed.lua in the usual case: every call was accepted so far, and this one fits under the soft limit. Returns
-- the outcome and what comes after the limit in `argument`; nothing, and nothing is written, where suppressed.lua has
-- to look.
local function quick(key, argument, at, now, cost)
  local soft, window, group, _, sticky, after = struct.unpack('<ddddB', argument, at)
  local text = redis.call('GETRANGE', key, '0', '1023')
  local drawn = 0
  if #text > 0 then
    if not is_state(text, 83, 37) then
      return
    end
    local _, stored_soft, stored_drawn, series = struct.unpack('<BI7I4B', text)
    if series > 1 or sticky == 1 and stored_soft ~= soft then
      return
    end
    drawn = stored_drawn
  end
  local used, series = advance(text, 14, now, window, math.max(group, 1), soft, cost)
  if not used then
    return
  end
  if used == 0 then
    drawn = 0
  end
  redis.call('SET', key, struct.pack('<BI7I4B', 83, soft, drawn, 1) .. series, 'PX', time_to_live(now + window, now))
  return struct.pack('<Bddddddd', 1, 0, soft, used, now, 0, now, now + window), after
end
