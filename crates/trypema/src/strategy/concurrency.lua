-- concurrency: the twin of concurrency.rs. Change both or neither.
--   limit    <d limit> <d hold>
--   state    the table of reservations.lua
--   outcome  <B admitted> <B 1 if another holder has room> <d units held before> <d everything held has expired by then>

local function read(argument, at)
  local limit = {}
  limit.limit, limit.hold, at = struct.unpack('<dd', argument, at)
  return limit, at
end

local load = load_table

local function save(key, _, state, now)
  save_table(key, state, now)
end

local function decide(limit, state, now, stamp, cost, needed)
  local held, has_room = held_at(state, now)
  needed = needed or cost
  local latest, is_stepped_back = latest_expiry_at(state, now, limit.hold)
  local admitted = needed <= (has_room and limit.limit - held or 0) or needed == 0
  return {
    admitted = admitted, has_room = has_room, held = held, latest = latest, is_stepped_back = is_stepped_back,
    -- At most one hold ahead, because more would look like a clock that went back.
    recorded = math.min(stamp, now + limit.hold),
  }
end

local function commit(limit, state, now, cost, outcome)
  if outcome.is_stepped_back then
    step_back(state, now, limit.hold)
    state.is_changed = true
  end
  -- A debit may find nothing left to count.
  local units = math.min(cost, 2 ^ 53 - 1 - outcome.held)
  if outcome.admitted and units > 0 then
    forget_expired_entries(state, now)
    insert_entry(state, anonymous_entry(units, outcome.recorded, outcome.recorded + limit.hold))
    state.is_changed = true
  end
end

local function available(limit, state, now, cost)
  local held, has_room = held_at(state, now)
  return has_room and math.min(cost, math.max(0, limit.limit - held)) or 0
end

local function refund(_, state, now, units, recorded)
  state.is_changed = true
  return release_anonymous(state, units, recorded, now)
end

local function retention(limit)
  return limit.hold
end

-- Returns the time at which committing the outcome, decided at `now`, records its units.
local function recorded_time(_, o)
  return o.recorded
end

local function encode_outcome(_, o)
  return struct.pack('<BBdd', o.admitted and 1 or 0, o.has_room and 1 or 0, o.held, o.latest)
end
