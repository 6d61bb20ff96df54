-- Attempts to make a reservation, and undoing them: the twin of attempts.rs. Change both or neither.
local reservations = require('reservations')

local NO_ATTEMPT = string.rep('\0', 8)

-- Returns whether the attempt was undone.
local function is_undone(t, id, attempt, now)
  for _, e in ipairs(reservations.entries_of(t, id, now)) do
    if e.state == UNDONE and e.attempt == attempt then
      return true
    end
  end
  return false
end

-- Notes that an attempt has found the open reservation.
local function confirm(t, id, attempt, now)
  reservations.forget_expired(t, now)
  local open, count = nil, 0
  for _, e in ipairs(reservations.entries_of(t, id, now)) do
    if e.state == OPEN then
      open = e
    elseif e.state == CONFIRMED then
      count = count + 1
      if e.attempt == attempt then
        return
      end
    end
  end
  if not open or open.attempt == attempt or open.attempt == NO_ATTEMPT then
    return
  end
  t.is_changed = true
  if count == MAX_CONFIRMATIONS or not reservations.has_room(t, 1) then
    open.attempt = NO_ATTEMPT
    reservations.replace(t, open.at, open)
    return
  end
  open.attempt, open.units, open.state = attempt, 0, CONFIRMED
  reservations.insert(t, open)
end

-- Undoes an attempt, and remembers until `marked_until`, unless that is 0, that it was undone. Returns the entry if
-- the attempt alone held its units, and whether the table has no room to remember it.
local function undo(t, id, attempt, marked_until, now)
  reservations.forget_expired(t, now)
  local made, own, other
  for _, e in ipairs(reservations.entries_of(t, id, now)) do
    if e.state == UNDONE and e.attempt == attempt then
      return
    elseif e.state == OPEN and e.attempt == attempt then
      made = e
    elseif e.state == CONFIRMED and e.attempt == attempt then
      own = e
    elseif e.state == CONFIRMED then
      other = other or e
    end
  end
  local removed
  if made and other then
    made.attempt = other.attempt
    reservations.replace(t, made.at, made)
    reservations.replace(t, other.at)
  elseif made then
    t.held = t.held - made.units
    reservations.replace(t, made.at)
    removed = made
  elseif own then
    reservations.replace(t, own.at)
  end
  t.is_changed = true
  if marked_until == 0 then
    return removed
  end
  local is_full = not reservations.has_room(t, 1)
  if not is_full then
    reservations.insert(t, {
      id = id, request = string.rep('\0', 8), attempt = attempt, units = 0, recorded = now, window_end = 0, count = 0,
      expires_at = marked_until, state = UNDONE,
    })
  end
  return removed, not removed and is_full
end

-- Lets nothing undo a reservation any more, because its holder has been answered.
local function forget_attempts(t, id, now)
  local chosen = id:byte() % 2 == 1
  local found = chosen and reservations.entries_of(t, id, now) or {reservations.find(t, id, now)}
  -- From the end, so that the places of those before stay as they are.
  for i = #found, 1, -1 do
    local e = found[i]
    if e.state == CONFIRMED then
      reservations.replace(t, e.at)
    elseif e.state == OPEN then
      e.attempt = NO_ATTEMPT
      reservations.replace(t, e.at, e)
    end
  end
end

-- Ends a reservation, and remembers that `units` were really spent if the caller chose its id, or if `is_remembered`.
local function settle(t, id, units, is_remembered, now)
  if id:byte() % 2 == 1 then
    forget_attempts(t, id, now)
  end
  local e = reservations.find(t, id, now)
  t.held = t.held - reservations.held_by(e)
  local is_kept = is_remembered or id:byte() % 2 == 1
  e.units, e.state = units, SETTLED
  reservations.replace(t, e.at, is_kept and e)
end

-- Lets a reservation expire at another time.
local function renew(t, id, expires_at, now)
  forget_attempts(t, id, now)
  local e = reservations.find(t, id, now)
  t.held, e.expires_at = t.held - reservations.held_by(e), expires_at
  reservations.replace(t, e.at)
  reservations.insert(t, e)
end

return {is_undone = is_undone, confirm = confirm, undo = undo, settle = settle, renew = renew}
