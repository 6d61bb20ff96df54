-- Returns the newest call in the closed bucket at `at` of a state in the usual case of series.lua, and the units
-- counted up to it, both wrapping.
return function(key, text, at)
  if at + 12 <= #text then
    return unpack('<I6I6', text, at + 1)
  end
  return unpack('<I6I6', call('GETRANGE', key, at, at + 11))
end
