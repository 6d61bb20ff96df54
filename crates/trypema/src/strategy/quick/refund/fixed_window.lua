-- The refund of fixed_window.lua in the usual case: the window is as it was. Returns the units refunded; nothing,
-- and nothing is written, where fixed_window.lua has to look.
local function quick_refund(key, argument, at, now, units, recorded)
  local _, window = unpack('<dd', argument, at)
  local text = call('GET', key)
  if not text then
    return 0
  end
  if window == 0 or #text < 17 then
    return
  end
  local tag, ends_at, counted = unpack('<Bdd', text)
  if tag ~= 70 then
    return
  end
  if now >= ends_at or recorded - recorded % window + window ~= ends_at then
    return 0
  end
  if units >= counted then
    call('DEL', key)
    return counted
  end
  call('SET', key, pack('<Bdd', 70, ends_at, counted - units), 'KEEPTTL')
  return units
end
