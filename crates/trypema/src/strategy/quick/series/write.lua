-- Writes a long state of series.lua in place: its head, and the buckets of `tail` from `slot` on of the ring.
return function(key, head, base, slot, room, tail)
  local fitting = (room - slot) * 12
  if #tail > 0 then
    call('SETRANGE', key, base + slot * 12, tail:sub(1, fitting))
  end
  if #tail > fitting then
    call('SETRANGE', key, base, tail:sub(fitting + 1))
  end
  call('SETRANGE', key, '0', head)
end
