-- The rest of the driver, for requests that are not in their usual case.
local PEEK, UP_TO, RESERVE, REFUND, REFUND_UNITS, RESET = 2, 3, 4, 5, 6, 7
local ADOPT, BLOCK, UNBLOCK, RECORD_DENIED_ELSEWHERE, HEARTBEAT = 8, 9, 10, 11, 13
local HOLD, SETTLE, RENEW, HOLDERS = 14, 15, 16, 17
local POSTPAID, DEBIT = 32, 64

-- Longer than any receipt is good for: two of the longest windows.
local LONGEST_MS = 2 * 366 * 86400000

define_leases()

local loaded, order = {}, {}

local function strategy_of(number)
  if not loaded[number] then
    loaded[number] = strategies[number]()
  end
  return loaded[number]
end

-- The state of a check: read once, and written once, when all is decided, however many checks are on it.
local function state_at(check)
  local key = KEYS[check.index]
  local entry = states[key]
  if not entry then
    entry = {strategy = check.strategy, state = check.strategy.load(key), key = key}
    states[key] = entry
    order[#order + 1] = entry
  end
  return entry
end

local table_functions

-- The functions of reservations.lua.
local function tables()
  table_functions = table_functions or reservations()
  return table_functions
end

-- The table of reservations beside the counter of a check; of a concurrency limit the state itself.
local function table_at(check)
  if check.number == CONCURRENCY then
    return state_at(check)
  end
  local key = KEYS[check.index + 1]
  local entry = states[key]
  if not entry then
    local function save(_, _, state, moment)
      tables().save(key, state, moment)
    end
    entry = {strategy = {save = save}, state = tables().load(key), key = key}
    states[key] = entry
    order[#order + 1] = entry
  end
  return entry
end

local function save_entry(entry)
  if entry.state.is_changed then
    entry.strategy.save(entry.key, entry.limit, entry.state, now)
    entry.state.is_changed, is_written = false, true
  end
end

-- Runs `change` on the state of a check. It is written by the limit that changed it last, whoever looks at it after.
local function changing(check, change, ...)
  local entry = check.entry
  local was_changed = entry.state.is_changed
  entry.state.is_changed = false
  local result = change(check, entry.state, ...)
  if entry.state.is_changed then
    entry.limit, entry.state.is_known = check.limit or entry.limit, true
  end
  entry.state.is_changed = entry.state.is_changed or was_changed
  return result
end

-- How often the key was reset, as long as receipts from before may be around.
local function resets_of(index)
  local resets = tonumber(redis.call('GET', KEYS[index + 1]) or 0)
  return resets or error('the count of resets is no number')
end

local function outlive(key, ttl)
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Keeps the count of resets as long as a receipt of this take is good; returns it.
local function keep_resets(check)
  if check.resets > 0 then
    -- A receipt counts for one retention after it was recorded, which is up to one retention, or the lease, from now.
    local retention = check.strategy.retention(check.limit)
    outlive(KEYS[check.index + 1], time_to_live(now + math.min(check.extra, retention) + 2 * retention, now))
  end
  return check.resets
end

local function reset(check)
  local key, counter, entry = KEYS[check.index], KEYS[check.index + 1], check.entry
  save_entry(entry)
  local ttl = redis.call('PTTL', key)
  local reservations_key = KEYS[check.index + 2]
  if states[reservations_key] then
    states[reservations_key].state = tables().empty()
  end
  local had_reservations = redis.call('DEL', reservations_key)
  if redis.call('DEL', key) == 0 then
    is_written = is_written or had_reservations > 0
    return had_reservations
  end
  is_written = true
  redis.call('INCR', counter)
  outlive(counter, ttl < 0 and LONGEST_MS or math.max(1, ttl))
  entry.state = entry.strategy.load(key)
  return 1
end

local function refund(check, state)
  local s = check.strategy
  local counts_until = check.extra + s.retention(check.limit)
  if check.resets ~= check.times or counts_until <= now then
    return 0
  end
  local ttl = time_to_live(counts_until, now)
  if not redis.call('SET', KEYS[check.index + 2], '', 'NX', 'PX', ttl) then
    return 0
  end
  is_written = true
  if not state.is_known then
    return 0
  end
  state.is_changed = true
  return s.refund(check.limit, state, now, check.cost, check.extra)
end

-- Decides one call and, unless `spend` is false, records it; returns its stretch.
local function decided(check, state, cost, stamp, is_spending)
  local s = check.strategy
  local outcome = s.decide(check.limit, state, now, stamp, cost, check.needed)
  if is_spending then
    s.commit(check.limit, state, now, cost, outcome)
  end
  return struct.pack('<I4', 1) .. s.encode_outcome(check.limit, outcome), outcome
end

-- Grants a lease: takes back what is left of an old one, and records the new one at its end.
local function leased(check, state)
  local s, limit, lease = check.strategy, check.limit, check.lease
  if lease.unspent > 0 then
    state.is_changed = true
    s.refund(limit, state, now, lease.unspent, lease.recorded)
  end
  local units = share_of(lease, s.available(limit, state, now, 2 ^ 53))
  if units == 0 then
    return 0, s.decide(limit, state, now, now, math.max(1, lease.need))
  end
  local outcome = s.decide(limit, state, now, lease_end(lease, now, units), units)
  s.commit(limit, state, now, units, outcome)
  return units, outcome
end

local WITH_RESETS = {[LEASE] = true, [RESERVE] = true, [REFUND] = true, [RESET] = true, [UNBLOCK] = true}

local verbs = {}
verbs[TAKE] = function(check, state, reply)
  if check.needed then
    reply[#reply + 1] = decided(check, state, check.cost, now, true)
  else
    check.strategy.take(check.limit, state, now, check.cost, check.times, reply)
  end
  return 0
end
verbs[PEEK] = function(check, state, reply)
  reply[#reply + 1] = decided(check, state, check.cost, now, false)
  return 0
end
verbs[UP_TO] = function(check, state, reply)
  local units = check.strategy.available(check.limit, state, now, check.cost)
  -- Where nothing fits, the answer says why a single unit does not; it is not recorded.
  local cost = units == 0 and math.min(check.cost, 1) or units
  reply[#reply + 1] = decided(check, state, cost, now, units > 0)
  return units
end
verbs[RESERVE] = function(check, state, reply)
  local stretch, outcome = decided(check, state, check.cost, now + check.extra, true)
  reply[#reply + 1] = stretch
  return outcome.admitted and keep_resets(check) or 0
end
verbs[LEASE] = function(check, state, reply)
  local s, lease = check.strategy, check.lease
  -- What has left, or was forgotten, is nobody's to take away.
  local is_counting = lease.recorded + s.retention(check.limit) > now
  if check.resets ~= lease.resets or not state.is_known or not is_counting then
    lease.unspent = 0
  end
  local units, outcome
  if s.lease then
    units, outcome = s.lease(check.limit, state, now, lease)
  else
    units, outcome = leased(check, state)
  end
  reply[#reply + 1] = struct.pack('<I4I4I4', lease.instances, units > 0 and keep_resets(check) or check.resets, 1)
    .. s.encode_outcome(check.limit, outcome)
  return units
end
verbs[RECORD_DENIED_ELSEWHERE] = function(check, state, reply)
  local s = check.strategy
  local outcome = s.decide(check.limit, state, now, now, check.cost, check.needed)
  local record = s.record_denied_elsewhere
  if not outcome.admitted then
    record = s.commit
  end
  reply[#reply + 1] = struct.pack('<I4', 1) .. s.encode_outcome(check.limit, outcome)
  if record then
    record(check.limit, state, now, check.cost, outcome)
  end
  return 0
end
verbs[REFUND] = function(check, state)
  return refund(check, state)
end
verbs[REFUND_UNITS] = function(check, state)
  if not state.is_known then
    return 0
  end
  state.is_changed = true
  return check.strategy.refund(check.limit, state, now, check.cost, -1)
end
verbs[RESET] = function(check)
  return reset(check)
end
verbs[ADOPT] = function(check, state)
  if not state.is_known then
    return 0
  end
  state.capacity, state.is_changed = check.limit.capacity, true
  return 1
end
verbs[BLOCK] = function(check, state)
  check.strategy.block_for(state, now, check.extra, check.cost)
  return 1
end
verbs[UNBLOCK] = function(check, state)
  local was_blocked = check.strategy.is_blocked(state, now)
  reset(check)
  return was_blocked and 1 or 0
end

-- Settles a reservation at one counter: refunds what was reserved and not spent, or counts what was spent beyond it.
-- Answers 0 if there is none, 1, or 2 if it was settled before.
verbs[SETTLE] = function(check, state, reply)
  local s, t = check.strategy, check.held.state
  tables().forget_expired(t, now)
  local e = tables().find(t, check.id, now)
  if not e or e.is_settled then
    reply[#reply + 1] = struct.pack('<I4dddd', 1, 0, 0, 0, 0)
    return e and 2 or 0
  end
  local reserved, counted, refunded = e.units, check.ending == ESTIMATE and e.units or check.cost, 0
  if check.number == CONCURRENCY then
    refunded = reserved
  elseif counted < reserved then
    if state.is_known and e.recorded + s.retention(check.limit) > now then
      state.is_changed = true
      refunded = s.refund(check.limit, state, now, reserved - counted, e.recorded)
    end
  elseif counted > reserved then
    local outcome = s.decide(check.limit, state, now, now, counted - reserved, 0)
    s.commit(check.limit, state, now, counted - reserved, outcome)
  end
  tables().settle(t, e, counted, check.ending == UNDONE)
  t.is_changed = true
  reply[#reply + 1] = struct.pack('<I4dddd', 1, reserved, counted, refunded, e.expires_at)
  return 1
end
verbs[RENEW] = function(check, _, reply)
  local t = check.held.state
  local e = tables().find(t, check.id, now)
  if not e or e.is_settled then
    reply[#reply + 1] = struct.pack('<I4dd', 1, 0, 0)
    return 0
  end
  tables().renew(t, check.id, now + check.extra)
  t.is_changed = true
  reply[#reply + 1] = struct.pack('<I4dd', 1, e.expires_at, now + check.extra)
  return 1
end
verbs[HOLDERS] = function(check, _, reply)
  local count, entries = tables().live(check.held.state, now)
  reply[#reply + 1] = struct.pack('<I4', 1) .. entries
  return count
end

local IS_OF_TABLE = {[HOLD] = true, [SETTLE] = true, [RENEW] = true, [HOLDERS] = true}

local function read_check()
  local check, number = {}, 0
  number, check.verb, check.index, check.times, check.cost, check.extra, at =
    struct.unpack('<BBI2I4dd', argument, at)
  check.number = number
  -- The units that must be free, if that is not the cost.
  if check.verb >= DEBIT then
    check.verb, check.needed = check.verb - DEBIT, 0
  elseif check.verb >= POSTPAID then
    check.verb, check.needed = check.verb - POSTPAID, 1
  end
  if check.verb == HEARTBEAT then
    check.instance, at = struct.unpack('<c8', argument, at)
    return check
  end
  check.strategy = strategy_of(number)
  if IS_OF_TABLE[check.verb] then
    local _
    check.id, check.request, check.ending, _, at = struct.unpack('<c16c8BI2', argument, at)
  end
  if check.verb ~= RESET and check.verb ~= BLOCK and check.verb ~= UNBLOCK then
    check.limit, at = check.strategy.read(argument, at)
  end
  if check.verb == LEASE then
    check.lease = {need = check.cost, length = check.extra}
    at = read_terms(check.lease, argument, at)
  end
  return check
end

-- Spends all checks of a request or none. One that is denied records what its strategy counts of denials.
local function all_or_nothing(checks, reply)
  local outcomes, is_admitted = {}, true
  for i, check in ipairs(checks) do
    outcomes[i] = check.strategy.decide(check.limit, check.entry.state, now, now, check.cost, check.needed)
    is_admitted = is_admitted and outcomes[i].admitted
  end
  for i, check in ipairs(checks) do
    local s, outcome = check.strategy, outcomes[i]
    local resets = is_admitted and check.verb == RESERVE and keep_resets(check) or 0
    reply[#reply + 1] = struct.pack('<BdI4', 1, resets, 1) .. s.encode_outcome(check.limit, outcome)
    local record = s.record_denied_elsewhere
    if is_admitted or not outcome.admitted then
      record = s.commit
    end
    if record then
      changing(check, function(_, state)
        record(check.limit, state, now, check.cost, outcome)
      end)
    end
  end
end

-- Decides one check of a reservation. Its number is 0 if the counter denies it, 1 if it fits, 2 if the reservation
-- is known, 3 if its id is that of another request, and 4 if the table has no room.
local function decide_hold(check)
  local s, state, t = check.strategy, check.entry.state, check.held.state
  local known = tables().find(t, check.id, now)
  if known then
    -- It spends nothing again.
    check.outcome = s.decide(check.limit, state, now, now, 0, 0)
    check.expires_at = known.expires_at
    return known.request == check.request and 2 or 3
  end
  check.outcome = s.decide(check.limit, state, now, now, check.cost, check.needed)
  check.expires_at = now + check.extra
  if not check.outcome.admitted then
    return 0
  end
  local _, has_room = tables().held(t, now)
  return (has_room or check.number == CONCURRENCY) and 1 or 4
end

-- Writes one check of a reservation that is admitted.
local function commit_hold(check)
  local s, t = check.strategy, check.held.state
  local hold = MAX_HOLD
  if check.number == CONCURRENCY then
    hold = check.limit.hold
  else
    changing(check, function(_, state)
      s.commit(check.limit, state, now, check.cost, check.outcome)
    end)
  end
  local _, is_stepped_back = tables().latest_expiry_at(t, now, hold)
  if is_stepped_back then
    tables().step_back(t, now, hold)
    t.is_changed = true
  end
  -- A slot of no units is no slot.
  if check.cost == 0 and check.number == CONCURRENCY then
    return
  end
  tables().forget_expired(t, now)
  tables().insert(t, {
    id = check.id, request = check.request, units = check.cost, expires_at = check.expires_at, is_settled = false,
    -- No units, no record of them.
    recorded = check.cost > 0 and s.recorded_time(check.limit, check.outcome, now) or now,
  })
  t.is_changed = true
end

-- Reserves all checks of a request or none.
local function reserve_all(checks, reply)
  local numbers, is_admitted = {}, true
  for i, check in ipairs(checks) do
    numbers[i] = decide_hold(check)
    is_admitted = is_admitted and (numbers[i] == 1 or numbers[i] == 2)
  end
  for i, check in ipairs(checks) do
    local s, outcome, number = check.strategy, check.outcome, numbers[i]
    if number == 1 and is_admitted then
      commit_hold(check)
    elseif number == 0 or number == 1 then
      local record = number == 0 and s.commit or s.record_denied_elsewhere
      if record then
        changing(check, function(_, state)
          record(check.limit, state, now, check.cost, outcome)
        end)
      end
    end
    reply[#reply + 1] = struct.pack('<BdI4d', 1, number, 1, check.expires_at)
      .. s.encode_outcome(check.limit, outcome)
  end
end

local function failed(checks, why, reply)
  local text = tostring(type(why) == 'table' and why.err or why):sub(1, 500)
  for _ = 1, #checks do
    reply[#reply + 1] = struct.pack('<BI2', 0, #text) .. text
  end
end

-- Reads all that a request needs. A key that holds something else fails its own request, and no other.
local function load_all(checks)
  for _, check in ipairs(checks) do
    if check.verb == HEARTBEAT then
      is_written = true
      check.instances = live_instances(KEYS[check.index], check.instance, check.extra, now)
      return
    end
    check.entry = state_at(check)
    check.held = IS_OF_TABLE[check.verb] and table_at(check)
    if WITH_RESETS[check.verb] then
      check.resets = resets_of(check.index)
    end
    if check.lease then
      is_written = true
      check.lease.instances = live_instances(KEYS[check.index + 2], check.lease.id, check.lease.live_for, now)
    end
  end
end

local function answer(count)
  local checks = {}
  for i = 1, count do
    checks[i] = read_check()
  end
  local is_loaded, why = pcall(load_all, checks)
  if not is_loaded then
    failed(checks, why, reply)
  elseif checks[1].verb == HOLD then
    reserve_all(checks, reply)
  elseif count == 1 then
    local stretches = {}
    local check = checks[1]
    local number = check.instances
    if number then
      -- A heartbeat has no state.
    elseif check.verb == RESET or check.verb == UNBLOCK then
      -- These replace the state.
      number = verbs[check.verb](check, check.entry.state)
    else
      number = changing(check, verbs[check.verb], stretches)
    end
    reply[#reply + 1] = struct.pack('<Bd', 1, number) .. table.concat(stretches)
  else
    all_or_nothing(checks, reply)
  end
end

local function answer_all()
  for _ = answered + 1, requests do
    if not answer_quickly() then
      if is_in_doubt then
        error('a part of a reservation was written', 0)
      end
      local count
      count, at = struct.unpack('<B', argument, at)
      answer(count)
    end
  end
  for _, entry in ipairs(order) do
    save_entry(entry)
  end
end

local is_done, why = pcall(answer_all)
if not is_done and is_written then
  return 'some of this may have been spent'
elseif not is_done then
  error(why, 0)
end
return table.concat(reply)
