-- token_bucket: the twin of token_bucket.rs, with its limits and debts. Change both or neither.
--   limit    <B number of limits>, then for each <d capacity> <d refill> <d unit> <d drain>
--   state    <B 'T'> <B limits (0 = 16) + 16 x pending> <d last> <I3 number of the count>, for each limit
--            <I7 owed, + 2^55 if overdrawn> <I6 unit> <I2 digest of the drain>, for each pending <d stamp> <I7 tokens>
--   outcome  <B admitted> <B first failing limit> <d decided at> <d not before, -1 = computed from the debts>
--            <d resets at, -1 = computed from the debts>, then for each limit <d owed before>

local debts = require('token_bucket/debt')

local function read(argument, at)
  local count
  count, at = unpack('<B', argument, at)
  local limits = {retention = 0}
  for i = 1, count do
    local l = {}
    l.capacity, l.refill, l.unit, l.drain, at = unpack('<dddd', argument, at)
    l.full, l.drain_digest = l.capacity * l.unit, l.drain % DRAIN_DIGESTS
    limits.retention = math.max(limits.retention, l.refill)
    limits[i] = l
  end
  return limits, at
end

-- Reads a state, which `save` below, quick/token_bucket.lua or quick/refund/token_bucket.lua wrote.
local function load(key)
  local text = call('GET', key)
  if not text then
    return {last = 0, debts = {}, pending = {}, count = 0}
  end
  require('state')(text, STATE_LETTER, 13)
  local _, counts, last, count, at = unpack('<BBdI3', text)
  local state = {debts = {}, pending = {}, count = count, is_known = true}
  local is_owing = counts >= 16
  for i = 1, (counts - 1) % 16 + 1 do
    local debt = {}
    -- A double cannot hold the mark and the debt together.
    local owed, high
    owed, high, debt.unit, debt.drain_digest, at = unpack('<I6BI6I2', text, at)
    debt.is_overdrawn = high >= 128
    debt.owed = owed + high % 128 * 2 ^ 48
    is_owing = is_owing or debt.owed > 0
    state.debts[i] = debt
  end
  for i = 1, math.floor(counts / 16) do
    local pending = {}
    pending.stamp, pending.tokens, at = unpack('<dI7', text, at)
    state.pending[i] = pending
  end
  -- The time of a debt of zero does not matter.
  state.last = is_owing and last or 0
  return state
end

-- Returns the time by which all debts and all pending tokens are paid off.
local function paid_at(limits, state)
  local from, tokens, latest = state.last, 0, 0
  for _, pending in ipairs(state.pending) do
    from = math.max(from, pending.stamp)
    tokens = tokens + pending.tokens
  end
  for i, debt in ipairs(state.debts) do
    local owed = debt.owed + tokens * debt.unit
    if owed > 0 then
      latest = math.max(latest, from + ceil(owed / limits[i].drain))
    end
  end
  return latest
end

local function save(key, limits, state, now)
  local parts = {pack('<BBdI3', STATE_LETTER, #state.debts % 16 + 16 * #state.pending, state.last, state.count)}
  for _, debt in ipairs(state.debts) do
    local high = math.floor(debt.owed / 2 ^ 48)
    high = high + (debt.is_overdrawn and 128 or 0)
    parts[#parts + 1] = pack('<I6BI6I2', debt.owed % 2 ^ 48, high, debt.unit, debt.drain_digest)
  end
  for _, pending in ipairs(state.pending) do
    parts[#parts + 1] = pack('<dI7', pending.stamp, pending.tokens)
  end
  if state.is_repaired then
    -- The debts are still in the units of earlier limits. Keep the time to live: because the clock went back,
    -- it is longer than any limit takes to refill.
    call('SET', key, table.concat(parts), 'KEEPTTL')
    return
  end
  local fresh_from = paid_at(limits, state)
  if fresh_from > 0 then
    call('SET', key, table.concat(parts), 'PX', time_to_live(fresh_from, now))
  elseif state.is_known then
    call('DEL', key)
  end
end

-- Returns the stored debt to the limit at `position`, in its units, and the most that it can be: the capacity,
-- unless it is overdrawn. If the number of limits has changed, the positions no longer match: then returns the
-- largest debt, overdrawn if any is, which is stricter.
local function debt_to(limits, state, position)
  local debt = state.debts[position]
  local is_overdrawn = debt and debt.is_overdrawn
  if #state.debts ~= #limits then
    debt, is_overdrawn = state.debts[1], false
    for i = 1, #state.debts do
      local other = state.debts[i]
      if debts.is_more(other.owed, other.unit, debt.owed, debt.unit) then
        debt = other
      end
      is_overdrawn = is_overdrawn or other.is_overdrawn
    end
  end
  local l = limits[position]
  local most = is_overdrawn and MAX_EXACT or l.full
  if not debt then
    return 0, most
  end
  if debt.unit == l.unit then
    return math.min(debt.owed, most), most
  end
  return debts.scaled(debt.owed, l.unit, debt.unit, most), most
end

-- Returns the debt to the limit at `position` at time `at`, divided into due and pending units, and the most
-- that it can be.
local function owed_at(limits, state, position, at)
  local l = limits[position]
  local due, most = debt_to(limits, state, position)
  local from, to_come = state.last, 0
  for _, pending in ipairs(state.pending) do
    local units = debts.units_of(l, pending.tokens, most)
    if pending.stamp <= at then
      due = math.min(debts.drained(l, due, math.max(0, pending.stamp - from)) + units, most)
      from = math.max(from, pending.stamp)
    else
      to_come = to_come + units
    end
  end
  return debts.drained(l, due, math.max(0, at - from)), math.min(to_come, most), most
end

-- Returns the debt to the limit at `position` after the call of outcome `o`.
local function owed_after(l, o, position, cost)
  local paid = o.admitted and debts.units_of(l, cost, MAX_EXACT) or 0
  return math.min(o.owed[position] + paid, MAX_EXACT)
end

-- Returns the time at which debts are evaluated: not before the stored time, unless the clock went back by
-- more than the longest refill. In that case, all history counts as happening now.
local function evaluation_time(limits, state, now)
  if state.last > now + limits.retention then
    return now
  end
  return math.max(now, state.last)
end

-- Returns the time at which the units of a postponed call count. Returns nil if they count at `at`. The time
-- is at most the longest refill after `at`: beyond that, the clock would seem to have gone back.
local function postponed_to(limits, at, now, stamp)
  local latest = math.min(stamp, at + limits.retention)
  if stamp > now and latest > at then
    return latest
  end
end

-- Computes the times of the outcome where some units are still pending.
local function look_ahead(limits, state, now, stamp, cost, needed, o)
  local pending = {}
  if not o.is_stepped_back then
    for i, each in ipairs(state.pending) do
      pending[i] = each
    end
  end
  local is_paying = o.admitted and cost > 0
  local postponed = postponed_to(limits, o.at, now, stamp)
  if postponed and is_paying then
    debts.insert_pending(pending, postponed, cost)
  end
  o.not_before, o.resets_at = o.at, o.at
  for i, l in ipairs(limits) do
    local due, _, most = owed_at(limits, state, i, o.at)
    if o.is_stepped_back then
      due = o.owed[i]
    end
    local room = l.full - debts.units_of(l, needed, l.full)
    o.not_before = math.max(o.not_before, debts.falls_to(l, due, o.at, room, most, pending))
    if owed_after(l, o, i, cost) > l.full then
      most = MAX_EXACT
    end
    if is_paying and not postponed then
      due = math.min(due + debts.units_of(l, cost, MAX_EXACT), most)
    end
    o.resets_at = math.max(o.resets_at, debts.falls_to(l, due, o.at, 0, most, pending))
  end
  -- The reply cannot hold a later time.
  o.not_before, o.resets_at = math.min(o.not_before, MAX_EXACT), math.min(o.resets_at, MAX_EXACT)
end

local function decide(limits, state, now, stamp, cost, needed)
  needed = needed or cost
  local at = evaluation_time(limits, state, now)
  local o = {
    admitted = true, failed = 0, at = at, stamp = stamp, owed = {}, not_before = -1, resets_at = -1,
    is_stepped_back = at < state.last,
  }
  for i, l in ipairs(limits) do
    local due, to_come, most = owed_at(limits, state, i, at)
    local owed = math.min(due + to_come, most)
    o.owed[i] = owed
    local has = needed <= l.capacity and needed * l.unit <= l.full - owed
    if not has and needed > 0 and o.admitted then
      o.admitted, o.failed = false, i - 1
    end
  end
  if #state.pending > 0 or stamp > now then
    look_ahead(limits, state, now, stamp, cost, needed, o)
  end
  return o
end

local function pending_tokens(state)
  local tokens = 0
  for _, pending in ipairs(state.pending) do
    tokens = tokens + pending.tokens
  end
  return tokens
end

-- Whether all units of the count are debts to `limits`: they were refilled at the same rates, and none is forgiven.
-- So the part of a call's units that is not refilled is certain.
local function is_whole(limits, state)
  local tokens = pending_tokens(state)
  for i, l in ipairs(limits) do
    local debt = state.debts[i]
    if not debt or debt.unit ~= l.unit or debt.drain_digest ~= l.drain_digest then
      return false
    end
    local most = debt.is_overdrawn and MAX_EXACT or l.full
    if debt.owed + debts.units_of(l, tokens, MAX_EXACT) > most then
      return false
    end
  end
  return #state.debts == #limits
end

-- Returns the count that units join which are recorded by `limits` at `now`.
local function count_after(limits, state, now)
  local is_owing = #state.pending > 0
  for _, debt in ipairs(state.debts) do
    is_owing = is_owing or debt.owed > 0
  end
  if not is_owing then
    return now % COUNTS
  end
  return is_whole(limits, state) and state.count or (state.count + 1) % COUNTS
end

-- Replaces the debts by `owed`, as of `at`, of which some are overdrawn. Drops the pending units that have
-- become due by then.
local function set_debts(limits, state, at, owed, overdrawn)
  state.count = count_after(limits, state, at)
  state.debts = {}
  local is_owing = false
  for i, l in ipairs(limits) do
    state.debts[i] = {owed = owed[i], unit = l.unit, drain_digest = l.drain_digest, is_overdrawn = overdrawn[i]}
    is_owing = is_owing or owed[i] > 0
  end
  local pending = {}
  for _, each in ipairs(state.pending) do
    if each.stamp > at then
      pending[#pending + 1] = each
    end
  end
  state.pending = pending
  -- The time of a debt of zero does not matter.
  state.last = (is_owing or #pending > 0) and at or 0
  state.is_changed, state.is_repaired = true, false
end

-- Makes all units due at `at`, after the clock went back to it. Debts stay in the units in which they were
-- counted, because the limits may have changed.
local function make_all_due(state, at)
  local tokens = pending_tokens(state)
  for _, debt in ipairs(state.debts) do
    debt.owed = math.min(debt.owed + tokens * debt.unit, MAX_EXACT)
  end
  state.last, state.pending = at, {}
  state.is_changed, state.is_repaired = true, true
end

local function commit(limits, state, now, cost, o)
  if o.is_stepped_back then
    make_all_due(state, o.at)
  end
  if not o.admitted or cost == 0 then
    return
  end
  local postponed = postponed_to(limits, o.at, now, o.stamp)
  local owed, overdrawn = {}, {}
  for i, l in ipairs(limits) do
    owed[i] = owed_at(limits, state, i, o.at)
    if not postponed then
      owed[i] = math.min(owed[i] + debts.units_of(l, cost, MAX_EXACT), MAX_EXACT)
    end
    overdrawn[i] = owed_after(l, o, i, cost) > l.full
  end
  set_debts(limits, state, o.at, owed, overdrawn)
  if postponed then
    debts.insert_pending(state.pending, postponed, cost)
    state.last = o.at
  end
end

local function available(limits, state, now, cost)
  local seen = decide(limits, state, now, now, 0)
  for i, l in ipairs(limits) do
    cost = math.min(cost, math.floor(math.max(0, l.full - seen.owed[i]) / l.unit))
  end
  return cost
end

local function refund(limits, state, now, tokens, recorded, _, count)
  if recorded >= 0 and (count ~= state.count or not is_whole(limits, state)) then
    return 0
  end
  local at = evaluation_time(limits, state, now)
  if at < state.last then
    make_all_due(state, at)
  end
  local from_pending = 0
  if recorded > at then
    from_pending = debts.remove_pending(state.pending, recorded, tokens)
  end
  local left = tokens - from_pending
  local owed, overdrawn, refunded = {}, {}, left
  for i, l in ipairs(limits) do
    local due, to_come, most = owed_at(limits, state, i, at)
    -- Refilling has already paid off a part of these units. A refund does not return that part again.
    local paid_for = recorded >= 0 and math.max(0, at - recorded) or 0
    local back = math.min(debts.drained(l, debts.units_of(l, left, most), paid_for), due)
    owed[i] = due - back
    refunded = math.min(refunded, math.floor(back / l.unit))
    -- Units that were spent under a larger limit are not an overdraft.
    overdrawn[i] = most > l.full and owed[i] + to_come > l.full
  end
  set_debts(limits, state, at, owed, overdrawn)
  return from_pending + refunded
end

local function retention(limits)
  return limits.retention
end

local function recorded_time(_, o)
  return o.at
end

local function recorded_units(limits, o, cost)
  for i, l in ipairs(limits) do
    cost = math.min(cost, math.floor((MAX_EXACT - o.owed[i]) / l.unit))
  end
  return cost
end

local function encode_outcome(_, o)
  local text = pack('<BBddd', o.admitted and 1 or 0, o.failed, o.at, o.not_before, o.resets_at)
  for i = 1, #o.owed do
    text = text .. pack('<d', o.owed[i])
  end
  return text
end

return {
  read = read, load = load, save = save, decide = decide, commit = commit, available = available, refund = refund,
  retention = retention, recorded_time = recorded_time, encode_outcome = encode_outcome,
  recorded_units = recorded_units,
}
