-- suppressed.lua in the usual case of a take: every call was accepted so far, and this one fits under the soft limit.
-- Returns the same as quick/fixed_window.lua.
local record = define('quick/series')

return function(key, argument, at, now, cost, lease)
  if lease then
    return UNUSUAL
  end
  local soft, window, group, _, sticky, after = unpack('<ddddB', argument, at)
  local text = call('GETRANGE', key, '0', '1023')
  local drawn = 0
  if #text > 0 then
    if #text < 37 then
      return UNUSUAL
    end
    local tag, stored_soft, stored_drawn, count = unpack('<BI7I4B', text)
    if tag ~= STATE_LETTER or count > 1 or sticky == 1 and stored_soft ~= soft then
      return UNUSUAL
    end
    drawn = stored_drawn
  end
  local prefix, fresh = pack('<BI7I4B', STATE_LETTER, soft, drawn, 1), pack('<BI7I4B', STATE_LETTER, soft, 0, 1)
  local used, _, recorded = record(key, text, prefix, fresh, now, window, group, soft, cost)
  if used == UNUSUAL then
    return UNUSUAL
  end
  return pack('<Bddddddd', 1, 0, soft, used, now, 0, recorded, recorded + window), after, cost, recorded
end
