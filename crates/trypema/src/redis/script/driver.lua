-- The rest of the driver, for requests that are not in their usual case.

-- Longer than any receipt is good for: two of the longest windows.
local LONGEST_MS = 2 * 366 * 86400000

local strategies, order = {}, {}

local function strategy_of(number)
  strategies[number] = strategies[number] or define('strategy', number)
  return strategies[number]
end

-- The state at `key`: read once, and written once, when all is decided, however many checks are on it.
local function state_at(key, strategy)
  if not states[key] then
    states[key] = {strategy = strategy, state = strategy.load(key), key = key}
    order[#order + 1] = states[key]
  end
  return states[key]
end

local function save_entry(entry)
  if entry.state.is_changed then
    entry.strategy.save(entry.key, entry.limit, entry.state, now)
    entry.state.is_changed, is_written = false, true
  end
end

-- Runs `change` on the state of a check. It is written by the limit that changed it last, regardless of later reads.
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

-- Records the outcome of a check with `record`, a function of its strategy, if it has that one.
local function record_outcome(check, record, outcome)
  if record then
    changing(check, function(_, state)
      record(check.limit, state, now, check.cost, outcome)
    end)
  end
end

-- How often the key was reset, as long as receipts from before may be around.
local function resets_of(index)
  local resets = tonumber(call('GET', KEYS[index + 1]) or 0)
  return resets or error('the count of resets is no number')
end

local function outlive(key, ttl)
  if call('PTTL', key) < ttl then
    call('PEXPIRE', key, ttl)
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
  local ttl = call('PTTL', key)
  local reservations_key = KEYS[check.index + 2]
  local had_reservations = call('DEL', reservations_key)
  if states[reservations_key] then
    states[reservations_key].state = require('reservations').load(reservations_key)
  end
  if call('DEL', key) == 0 then
    is_written = is_written or had_reservations > 0
    return had_reservations
  end
  is_written = true
  call('INCR', counter)
  outlive(counter, ttl < 0 and LONGEST_MS or math.max(1, ttl))
  entry.state = entry.strategy.load(key)
  return 1
end

local function refund(check, state)
  local s = check.strategy
  local counts_until = check.extra + s.retention(check.limit)
  if check.resets ~= check.resets_at_take or counts_until <= now then
    return 0
  end
  local ttl = time_to_live(counts_until, now)
  if not call('SET', KEYS[check.index + 2], '', 'NX', 'PX', ttl) then
    return 0
  end
  is_written = true
  if not state.is_known then
    return 0
  end
  return s.refund(check.limit, state, now, check.cost, check.extra, check.window_end, check.count)
end

-- Returns the count that the units of the last commit joined, see strategy/origin.rs: the end of its window, if the
-- strategy has windows, and its number, if it has numbers.
local function origin_of(state)
  return state.ends_at or 0, state.count or 0
end

-- Decides one call and, unless `spend` is false, records it; returns its stretch.
local function decided(check, state, cost, stamp, is_spending)
  local s = check.strategy
  local outcome = s.decide(check.limit, state, now, stamp, cost, check.needed)
  if is_spending then
    s.commit(check.limit, state, now, cost, outcome)
  end
  return pack('<I4', 1) .. s.encode_outcome(check.limit, outcome), outcome
end

-- Grants a lease: takes back what is left of an old one, and records the new one at its end.
local function leased(check, state)
  local s, limit, lease, leases = check.strategy, check.limit, check.lease, require('lease')
  if lease.unspent > 0 then
    s.refund(limit, state, now, lease.unspent, lease.recorded, lease.window_end, lease.count)
  end
  local units = leases.share_of(lease, s.available(limit, state, now, 2 ^ 53))
  if units == 0 then
    return 0, s.decide(limit, state, now, now, math.max(1, lease.need))
  end
  local outcome = s.decide(limit, state, now, leases.lease_end(lease, now, units), units)
  s.commit(limit, state, now, units, outcome)
  return units, outcome
end

-- Returns the outcome to report of a check whose request another check denies: nothing is spent, so it says what is
-- left.
local function uncharged(check, state, outcome)
  if outcome.admitted then
    return check.strategy.decide(check.limit, state, now, now, 0, 0)
  end
  return outcome
end

local WITH_RESETS = VERBS_WITH_RESETS

local verbs = {}
verbs[TAKE] = function(check, state, reply)
  if check.needed then
    reply[#reply + 1] = decided(check, state, check.cost, now, true)
  else
    require('take')(check.strategy, check.limit, state, now, check.cost, check.times, reply)
  end
  return 0
end
verbs[PEEK] = function(check, state, reply)
  reply[#reply + 1] = decided(check, state, check.cost, now, false)
  return 0
end
verbs[UP_TO] = function(check, state, reply)
  local units = check.strategy.available(check.limit, state, now, check.cost)
  -- If nothing fits, the answer says why a single unit does not; it is not recorded.
  local cost = units == 0 and math.min(check.cost, 1) or units
  reply[#reply + 1] = decided(check, state, cost, now, units > 0)
  return units
end
verbs[TAKE_WITH_RECEIPT] = function(check, state, reply)
  local stretch, outcome = decided(check, state, check.cost, now + check.extra, true)
  reply[#reply + 1] = pack('<dI4', origin_of(state)) .. stretch
  return outcome.admitted and keep_resets(check) or 0
end
verbs[LEASE] = function(check, state, reply)
  local s, lease = check.strategy, check.lease
  -- Expired or reset units cannot be returned.
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
  local window_end, count = origin_of(state)
  local resets = units > 0 and keep_resets(check) or check.resets
  reply[#reply + 1] = pack('<I4I4dI4I4', lease.instances, resets, window_end, count, 1)
    .. s.encode_outcome(check.limit, outcome)
  return units
end
verbs[DENIED_ELSEWHERE] = function(check, state, reply)
  local s = check.strategy
  local outcome = s.decide(check.limit, state, now, now, check.cost, check.needed)
  local record = s.record_denied_elsewhere
  if not outcome.admitted then
    record = s.commit
  end
  reply[#reply + 1] = pack('<I4', 1) .. s.encode_outcome(check.limit, uncharged(check, state, outcome))
  if record then
    record(check.limit, state, now, check.cost, outcome)
  end
  return 0
end
verbs[REFUND] = refund
verbs[REFUND_UNITS] = function(check, state)
  if not state.is_known then
    return 0
  end
  return check.strategy.refund(check.limit, state, now, check.cost, -1)
end
verbs[RESET] = reset
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
