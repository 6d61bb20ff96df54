-- concurrency: the twin of concurrency.rs. Change both or neither.
--   limit    <d limit> <d hold>
--   state    the table of reservations.lua
--   outcome  <B admitted> <B 1 if another holder has room> <d units held before> <d time by which all has expired>

local reservations = require('reservations')

local function read(argument, at)
  local limit = {}
  limit.limit, limit.hold, at = unpack('<dd', argument, at)
  return limit, at
end

local function decide(limit, state, now, stamp, cost, needed)
  local held, has_room = reservations.held_at(state, now)
  needed = needed or cost
  local latest, is_stepped_back = reservations.latest_expiry_at(state, now, limit.hold)
  local admitted = needed <= (has_room and limit.limit - held or 0) or needed == 0
  return {
    admitted = admitted, has_room = has_room, held = held, latest = latest, is_stepped_back = is_stepped_back,
    -- At most one hold ahead, because more would look like a clock that went back.
    recorded = math.min(stamp, now + limit.hold),
  }
end

local function commit(limit, state, now, cost, outcome)
  if outcome.is_stepped_back then
    reservations.step_back(state, now, limit.hold)
    state.is_changed = true
  end
  -- A debit may find nothing left to count.
  local units = math.min(cost, MAX_EXACT - outcome.held)
  if outcome.admitted and units > 0 then
    reservations.forget_expired(state, now)
    reservations.insert(state, reservations.anonymous_entry(units, outcome.recorded, outcome.recorded + limit.hold))
    state.is_changed = true
  end
end

local function available(limit, state, now, cost)
  local held, has_room = reservations.held_at(state, now)
  return has_room and math.min(cost, math.max(0, limit.limit - held)) or 0
end

local function refund(_, state, now, units, recorded)
  state.is_changed = true
  return reservations.release_anonymous(state, units, recorded, now)
end

local function retention(limit)
  return limit.hold
end

local function encode_outcome(_, o)
  return pack('<BBdd', o.admitted and 1 or 0, o.has_room and 1 or 0, o.held, o.latest)
end

-- Grants nothing: units that are held have a holder. The outcome is that of the call that asked. The twin of
-- concurrency/lease.rs: change both or neither.
local function lease(limit, state, now, lease)
  return 0, decide(limit, state, now, now, math.max(1, lease.need))
end

return {
  read = read, load = reservations.load, save = reservations.save, decide = decide, commit = commit,
  available = available, refund = refund, retention = retention, encode_outcome = encode_outcome, lease = lease,
  is_held = true,
}
