-- Reservations: their tables, beside the counters, and the verbs that use them.
local tables, attempts = require('reservations'), require('reservations/attempts')
local verbs = {}

-- The table of reservations beside the counter of a check, or the state of a strategy that holds units.
local function table_at(check)
  return check.strategy.is_held and check.entry or state_at(KEYS[check.index + 1], tables)
end

-- Refunds units of the reservation `e`, as far as they still count. Returns their number.
local function refund_entry(check, state, e, units)
  local s = check.strategy
  if check.strategy.is_held then
    return units
  end
  if not state.is_known or e.recorded + s.retention(check.limit) <= now then
    return 0
  end
  return s.refund(check.limit, state, now, units, e.recorded, e.window_end, e.count)
end

-- Undoes an attempt at one counter. Answers 1 if it alone held units, 0 if not, and 3 if the table has no room to
-- remember it.
local function undo(check, state, reply)
  local marked_until = check.extra > 0 and now + check.extra or 0
  local e, is_full = attempts.undo(check.held.state, check.id, check.attempt, marked_until, now)
  local reserved, refunded, expires_at = 0, 0, 0
  if e then
    reserved, refunded, expires_at = e.units, refund_entry(check, state, e, e.units), e.expires_at
  end
  reply[#reply + 1] = pack('<I4dddd', 1, reserved, 0, refunded, expires_at)
  return e and 1 or is_full and 3 or 0
end

-- Settles a reservation at one counter: refunds what was reserved and not spent, or counts what was spent beyond it.
-- Answers 0 if there is none, 1, or 2 if it was settled before.
verbs[SETTLE] = function(check, state, reply)
  if check.ending == AT_UNDOING then
    return undo(check, state, reply)
  end
  local s, t = check.strategy, check.held.state
  tables.forget_expired(t, now)
  local e = tables.find(t, check.id, now)
  if not e or e.state ~= OPEN then
    reply[#reply + 1] = pack('<I4dddd', 1, 0, 0, 0, 0)
    return e and 2 or 0
  end
  local reserved, counted, refunded = e.units, check.ending == AT_ESTIMATE and e.units or check.cost, 0
  if check.strategy.is_held or counted < reserved then
    refunded = refund_entry(check, state, e, check.strategy.is_held and reserved or reserved - counted)
  elseif counted > reserved then
    local outcome = s.decide(check.limit, state, now, now, counted - reserved, 0)
    s.commit(check.limit, state, now, counted - reserved, outcome)
  end
  attempts.settle(t, check.id, counted, check.is_remembered, now)
  t.is_changed = true
  reply[#reply + 1] = pack('<I4dddd', 1, reserved, counted, refunded, e.expires_at)
  return 1
end
verbs[RENEW] = function(check, _, reply)
  local t = check.held.state
  local e = tables.find(t, check.id, now)
  if not e or e.state ~= OPEN then
    reply[#reply + 1] = pack('<I4dd', 1, 0, 0)
    return 0
  end
  reply[#reply + 1] = pack('<I4dd', 1, e.expires_at, now + check.extra)
  attempts.renew(t, check.id, now + check.extra, now)
  t.is_changed = true
  return 1
end
verbs[HOLDERS] = function(check, _, reply)
  local count, entries = tables.live_entries(check.held.state, now)
  reply[#reply + 1] = pack('<I4', 1) .. entries
  return count
end

-- Decides one check of a reservation. Its number is 0 if the counter denies it, 1 if it fits, 2 if the reservation
-- is known, 3 if its id is that of another request, 4 if the table has no room, 5 if the reservation is known and
-- has been settled or released, and 7 if the attempt was undone. (6 is reported of a check that fits, if another check
-- denies the request.)
local function decide_reservation(check)
  local s, state, t = check.strategy, check.entry.state, check.held.state
  if attempts.is_undone(t, check.id, check.attempt, now) then
    check.outcome, check.expires_at = s.decide(check.limit, state, now, now, 0, 0), now
    return 7
  end
  local known = tables.find(t, check.id, now)
  if known then
    -- It spends nothing again.
    check.outcome = s.decide(check.limit, state, now, now, 0, 0)
    check.expires_at = known.expires_at
    return known.request ~= check.request and 3 or known.state ~= OPEN and 5 or 2
  end
  check.outcome = s.decide(check.limit, state, now, now, check.cost, check.needed)
  check.expires_at = now + check.extra
  if not check.outcome.admitted then
    return 0
  end
  local _, has_room = tables.held_at(t, now)
  -- A concurrency reservation of 0 units needs no entry.
  return (has_room or check.strategy.is_held and check.cost == 0) and 1 or 4
end

-- Writes one check of a reservation that is admitted.
local function commit_reservation(check)
  local s, t = check.strategy, check.held.state
  local hold = MAX_HOLD
  if check.strategy.is_held then
    hold = check.limit.hold
  else
    record_outcome(check, s.commit, check.outcome)
  end
  local _, is_stepped_back = tables.latest_expiry_at(t, now, hold)
  if is_stepped_back then
    tables.step_back(t, now, hold)
    t.is_changed = true
  end
  -- A concurrency reservation of 0 units needs no entry.
  if check.cost == 0 and check.strategy.is_held then
    return
  end
  -- A cost of 0 is not recorded: use the present time.
  local units, recorded, window_end, count = check.cost, now, 0, 0
  if units > 0 then
    window_end, count = origin_of(check.entry.state)
    recorded = check.outcome.recorded or s.recorded_time(check.limit, check.outcome, now)
    units = s.recorded_units and s.recorded_units(check.limit, check.outcome, units) or units
  end
  tables.forget_expired(t, now)
  tables.insert(t, {
    id = check.id, request = check.request, attempt = check.attempt, units = units, recorded = recorded,
    window_end = window_end, count = count, expires_at = check.expires_at, state = OPEN,
  })
  t.is_changed = true
end

-- Reserves all checks of a request or none.
local function reserve_all(checks, reply)
  local numbers, is_admitted, is_failed = {}, true, false
  for i, check in ipairs(checks) do
    numbers[i] = decide_reservation(check)
    is_admitted = is_admitted and (numbers[i] == 1 or numbers[i] == 2 or numbers[i] == 5)
    is_failed = is_failed or numbers[i] == 3 or numbers[i] == 7
  end
  for i, check in ipairs(checks) do
    local s, outcome, number = check.strategy, check.outcome, numbers[i]
    local told = outcome
    if number == 4 or number == 1 and not is_admitted then
      told = uncharged(check, check.entry.state, outcome)
    end
    if number == 1 and is_admitted then
      commit_reservation(check)
    elseif number == 2 and is_admitted then
      attempts.confirm(check.held.state, check.id, check.attempt, now)
    elseif (number == 0 or number == 1) and not is_failed then
      -- A conflict or an undone attempt fails the request, which counts nowhere then.
      record_outcome(check, number == 0 and s.commit or s.record_denied_elsewhere, outcome)
    end
    if number == 1 and not is_admitted then
      number = 6
    end
    reply[#reply + 1] = pack('<BdI4d', 1, number, 1, check.expires_at)
      .. s.encode_outcome(check.limit, told)
  end
end

verbs.table_at, verbs.reserve_all = table_at, reserve_all
return verbs
