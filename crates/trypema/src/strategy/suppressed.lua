-- suppressed: the twin of suppressed.rs. Change both or neither.
--   limit    <d soft> <d window> <d group> <d hard limit factor>
--            <B 1 if sticky: the soft limit of a live state takes precedence>
--   state    <B 'S'> <I7 soft> <I4 drawn> <B series> and one series (accepted), or two (then observed)
--   outcome  <B zone: 0 rejected, 1 allowed, 2 drawn and denied, 3 drawn and admitted> <d factor> <d soft>
--            <d used before> <d not before, -1 = never> <d used after that wait> <d recorded at>
--            <d resets at>

local series = require('series')

local SECOND = 1000000

local function read(argument, at)
  local limit = {}
  local sticky
  limit.capacity, limit.window, limit.group, limit.factor, sticky, at = unpack('<ddddB', argument, at)
  limit.is_sticky = sticky == 1
  return limit, at
end

-- Returns the hard limit for a soft limit of `soft`.
local function hard_of(limit, soft)
  return math.min(math.floor(soft * limit.factor * (1 + 1e-12)), MAX_EXACT)
end

-- Reads a state, which `series.save` or quick/series.lua wrote.
local function load(key)
  local text = series.load(key, STATE_LETTER, 37)
  if #text == 0 then
    return {text = text, capacity = 0, drawn = 0, accepted = series.new()}
  end
  local _, capacity, drawn, count, at = unpack('<BI7I4B', text)
  local state = {text = text, capacity = capacity, drawn = drawn, is_known = true}
  local list = series.read(key, text, at, count)
  state.accepted, state.observed = list[1], list[2]
  return state
end

local function save(key, _, state, now)
  local list = {state.accepted, state.observed}
  local prefix = pack('<BI7I4B', STATE_LETTER, state.capacity, state.drawn, #list)
  series.save(key, state.text, prefix, list, now, 0)
end

-- Returns the share of calls to admit after `cost` more units are observed at `now`.
local function share_observed(limit, state, now, soft, cost)
  local observed = state.observed or state.accepted
  local used, _, is_stepped_back = series.view(observed, now, limit.window)
  local last_second = used
  if not is_stepped_back then
    last_second = series.units_within(observed, now, SECOND)
  end
  local windows_worth = (last_second + cost) * (limit.window / SECOND)
  return math.min(soft / math.max(used + cost, windows_worth), 1)
end

-- Returns the last draw, or 0 if nothing counts any more. `used` is the number of accepted units at `now`.
local function last_drawn(limit, state, now, used)
  if used == 0 and (not state.observed or series.view(state.observed, now, limit.window) == 0) then
    return 0
  end
  return state.drawn
end

-- Returns the soft limit in force: the stored one if this limit is sticky and the state still counts
-- something.
local function soft_of(limit, state, now, used)
  if limit.is_sticky then
    if used > 0 or state.observed and series.view(state.observed, now, limit.window) > 0 then
      return state.capacity
    end
  end
  return limit.capacity
end

-- Returns the earliest time at which a denied call can be admitted, and the units that still count then.
--
-- A cost within the soft limit waits until it fits under that. A cost between the limits can only be admitted
-- by a draw: it waits until it fits under the hard limit, and at least for one group. A cost above the hard
-- limit never fits.
local function until_admitted(limit, state, now, used, is_stepped_back, soft, cost)
  local s, hard = state.accepted, hard_of(limit, soft)
  if cost <= soft or cost > hard then
    return series.until_fits(s, now, limit.window, used, is_stepped_back, soft, cost)
  end
  local again = now + limit.group
  if cost <= hard - used then
    return again, used
  end
  local not_before, used_after = series.until_fits(s, now, limit.window, used, is_stepped_back, hard, cost)
  return math.max(not_before, again), used_after
end

local function decide(limit, state, now, stamp, cost, needed)
  local s, window = state.accepted, limit.window
  needed = needed or cost
  local used, expired, is_stepped_back = series.view(s, now, window)
  local soft = soft_of(limit, state, now, used)
  stamp = math.min(stamp, now + window)
  local o = {
    zone = 1, factor = 0, soft = soft, used = used, expired = expired,
    is_stepped_back = is_stepped_back, stamp = stamp, not_before = now, used_after = 0,
    recorded = series.recorded_at(s, now, used, is_stepped_back, stamp),
  }
  if needed > soft - used and needed > 0 then
    o.zone = 0
    if needed <= hard_of(limit, soft) - used then
      local share = share_observed(limit, state, now, soft, needed)
      o.factor = 1 - share
      o.drawn = (last_drawn(limit, state, now, used) + GOLDEN) % 2 ^ 32
      o.zone = o.drawn < math.floor(share * 2 ^ 32) and 3 or 2
    end
  end
  o.admitted = o.zone % 2 == 1
  if o.admitted and cost > 0 then
    o.resets_at = o.recorded + window
  else
    o.resets_at = series.empty_at(s, now, window, used, is_stepped_back)
  end
  if not o.admitted then
    o.not_before, o.used_after = until_admitted(limit, state, now, used, is_stepped_back, soft, needed)
  end
  return o
end

-- Moves the observed units to now, if the clock went back by more than a window.
local function repair_observed(limit, state, now)
  if state.observed then
    local used, expired, is_stepped_back = series.view(state.observed, now, limit.window)
    if is_stepped_back then
      series.forget_expired(state.observed, now, used, expired, true)
      state.is_changed = true
    end
  end
end

local function commit(limit, state, now, cost, o)
  local s, window = state.accepted, limit.window
  if cost == 0 then
    if o.is_stepped_back then
      series.forget_expired(s, now, o.used, o.expired, true)
      state.is_changed = true
    end
    return repair_observed(limit, state, now)
  end
  state.is_changed = true
  state.capacity = o.soft
  state.drawn = o.drawn or last_drawn(limit, state, now, o.used)
  if not o.admitted and not state.observed then
    state.observed = series.copy_of(s)
  end
  if o.admitted then
    series.record(s, now, window, o.used, o.expired, o.is_stepped_back, o.stamp, limit.group,
      series.countable(cost, o.used))
  elseif o.is_stepped_back then
    series.forget_expired(s, now, o.used, o.expired, true)
  end
  local observed = state.observed
  if observed then
    local used, expired, is_stepped_back = series.view(observed, now, window)
    cost = series.countable(cost, used)
    series.record(observed, now, window, used, expired, is_stepped_back, o.stamp, limit.group, cost)
  end
end

-- Records a call that this strategy would have admitted, but that another check of its request denied.
local function record_denied_elsewhere(limit, state, now, cost, o)
  if cost > 0 then
    o.admitted = false
    commit(limit, state, now, cost, o)
  end
end

local function available(limit, state, now, cost)
  local used = series.view(state.accepted, now, limit.window)
  return math.min(cost, math.max(0, soft_of(limit, state, now, used) - used))
end

local function refund(limit, state, now, units, recorded)
  if not state.observed then
    -- A refunded call was still observed, so the two series differ from now on.
    state.observed = series.copy_of(state.accepted)
  end
  repair_observed(limit, state, now)
  state.is_changed = true
  return series.refund(state.accepted, now, limit.window, limit.group, units, recorded)
end

local function retention(limit)
  return limit.window
end

local function recorded_units(_, o, cost)
  return series.countable(cost, o.used)
end

local function encode_outcome(_, o)
  return pack('<Bddddddd', o.zone, o.factor, o.soft, o.used, o.not_before, o.used_after, o.recorded,
    o.resets_at)
end

-- Refunds the unspent units, and adds the reported calls to the observed ones. A lease is not a call, so the
-- two series differ from the first lease on.
local function apply_returns(limit, state, now, lease)
  if not state.observed then
    state.observed = series.copy_of(state.accepted)
  end
  repair_observed(limit, state, now)
  if lease.unspent > 0 then
    series.refund(state.accepted, now, limit.window, limit.group, lease.unspent, lease.recorded)
  end
  if lease.reported > 0 then
    local used, expired, is_stepped_back = series.view(state.observed, now, limit.window)
    series.record(state.observed, now, limit.window, used, expired, is_stepped_back, now, limit.group,
      series.countable(lease.reported, used))
  end
end

-- Records a lease as accepted units, and updates its outcome.
local function record_lease(limit, state, now, units, stamp, o)
  local s, window = state.accepted, limit.window
  if units == 0 then
    if o.is_stepped_back then
      series.forget_expired(s, now, o.used, o.expired, true)
    end
    return
  end
  state.capacity = o.soft
  stamp = math.min(stamp, now + window)
  o.recorded = series.recorded_at(s, now, o.used, o.is_stepped_back, stamp)
  o.resets_at = o.recorded + window
  series.record(s, now, window, o.used, o.expired, o.is_stepped_back, stamp, limit.group, units)
end

-- Decides a lease: the twin of suppressed/lease.rs. Change both or neither.
local function lease(limit, state, now, lease)
  local leases = require('lease')
  apply_returns(limit, state, now, lease)
  state.is_changed = true
  local cost = math.max(1, lease.need)
  local o = decide(limit, state, now, now, cost)
  local room = math.max(0, hard_of(limit, o.soft) - o.used)
  local free = math.max(0, o.soft - o.used)
  local units = leases.share_of(lease, free)
  if units > 0 then
    o.zone = 1
  elseif cost > free and cost <= room then
    -- The calls that the instance reported are observed already.
    local share = share_observed(limit, state, now, o.soft, 0)
    state.drawn = (last_drawn(limit, state, now, o.used) + GOLDEN) % 2 ^ 32
    units = math.floor(lease.want * share + state.drawn / 2 ^ 32)
    units = math.min(units, math.max(1, math.floor(room / lease.instances)))
    o.factor, o.zone = 1 - share, units > 0 and 3 or 2
  end
  record_lease(limit, state, now, units, leases.lease_end(lease, now, units), o)
  return units, o
end

return {
  read = read, load = load, save = save, decide = decide, commit = commit, available = available, refund = refund,
  retention = retention, encode_outcome = encode_outcome, recorded_units = recorded_units,
  record_denied_elsewhere = record_denied_elsewhere, lease = lease,
}
