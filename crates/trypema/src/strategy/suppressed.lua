-- suppressed: the twin of suppressed.rs. Change both or neither.
--   limit    <d soft> <d window> <d group> <d hard limit factor>
--            <B 1 if sticky: the soft limit of a live state takes precedence>
--   state    <B 'S'> <I7 soft> <I4 drawn> <B series> and one series (accepted), or two (then observed)
--   outcome  <B zone: 0 rejected, 1 allowed, 2 drawn and denied, 3 drawn and admitted> <d factor> <d soft>
--            <d used before> <d not before, -1 = never> <d used after that wait> <d recorded at>
--            <d resets at>

local SECOND = 1000000
local GOLDEN = 0x9E3779B9

local function read(argument, at)
  local limit = {}
  local sticky
  limit.capacity, limit.window, limit.group, limit.factor, sticky, at = struct.unpack('<ddddB', argument, at)
  limit.is_sticky = sticky == 1
  return limit, at
end

-- Returns the hard limit for a soft limit of `soft`.
local function hard_of(limit, soft)
  return math.min(math.floor(soft * limit.factor * (1 + 1e-12)), MAX_EXACT)
end

local function load(key)
  local text = redis.call('GETRANGE', key, '0', '1023')
  if #text == 0 then
    return {text = text, capacity = 0, drawn = 0, accepted = new_series()}
  end
  check_state(text, 83, 37)
  local _, capacity, drawn, series, at = struct.unpack('<BI7I4B', text)
  local state = {text = text, capacity = capacity, drawn = drawn, is_known = true}
  state.accepted, at = read_head(key, text, at)
  if series == 2 then
    state.observed, at = read_head(key, text, at)
  end
  place({state.accepted, state.observed}, at)
  return state
end

local function save(key, _, state, now)
  local list = {state.accepted, state.observed}
  local prefix = struct.pack('<BI7I4B', 83, state.capacity, state.drawn, #list)
  local fresh_from = series_fresh_from(state.accepted)
  if state.observed then
    fresh_from = math.max(fresh_from, series_fresh_from(state.observed))
  end
  save_series(key, state.text, prefix, list, now, fresh_from)
end

-- Returns an independent copy of a series. Both are then rewritten completely.
local function copy_of(s)
  relocate(s, linear(s))
  local copy = {}
  for name, value in pairs(s) do
    copy[name] = value
  end
  return copy
end

-- Returns the share of calls to admit after `cost` more units are observed at `now`.
local function share_observed(limit, state, now, soft, cost)
  local observed = state.observed or state.accepted
  local used, _, is_stepped_back = view(observed, now, limit.window)
  local last_second = used
  if not is_stepped_back then
    last_second = units_within(observed, now, SECOND)
  end
  local windows_worth = (last_second + cost) * (limit.window / SECOND)
  return math.min(soft / math.max(used + cost, windows_worth), 1)
end

-- Returns the last draw, or 0 if nothing counts any more. `used` is the number of accepted units at `now`.
local function last_drawn(limit, state, now, used)
  if used == 0 and (not state.observed or view(state.observed, now, limit.window) == 0) then
    return 0
  end
  return state.drawn
end

-- Returns the soft limit in force: the stored one if this limit is sticky and the state still counts
-- something.
local function soft_of(limit, state, now, used)
  if limit.is_sticky then
    if used > 0 or state.observed and view(state.observed, now, limit.window) > 0 then
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
    return until_fits(s, now, limit.window, used, is_stepped_back, soft, cost)
  end
  local again = now + limit.group
  if cost <= hard - used then
    return again, used
  end
  local not_before, used_after = until_fits(s, now, limit.window, used, is_stepped_back, hard, cost)
  return math.max(not_before, again), used_after
end

local function decide(limit, state, now, stamp, cost, needed)
  local s, window = state.accepted, limit.window
  needed = needed or cost
  local used, expired, is_stepped_back = view(s, now, window)
  local soft = soft_of(limit, state, now, used)
  stamp = math.min(stamp, now + window)
  local o = {
    zone = 1, factor = 0, soft = soft, used = used, expired = expired,
    is_stepped_back = is_stepped_back, stamp = stamp, not_before = now, used_after = 0,
    recorded = recorded_at(s, now, used, is_stepped_back, stamp),
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
    o.resets_at = empty_at(s, now, window, used, is_stepped_back)
  end
  if not o.admitted then
    o.not_before, o.used_after = until_admitted(limit, state, now, used, is_stepped_back, soft, needed)
  end
  return o
end

-- Moves the observed units to now, if the clock went back by more than a window.
local function repair_observed(limit, state, now)
  if state.observed then
    local used, expired, is_stepped_back = view(state.observed, now, limit.window)
    if is_stepped_back then
      forget_expired(state.observed, now, used, expired, true)
      state.is_changed = true
    end
  end
end

local function commit(limit, state, now, cost, o)
  local s, window = state.accepted, limit.window
  if cost == 0 then
    if o.is_stepped_back then
      forget_expired(s, now, o.used, o.expired, true)
      state.is_changed = true
    end
    return repair_observed(limit, state, now)
  end
  state.is_changed = true
  state.capacity = o.soft
  state.drawn = o.drawn or last_drawn(limit, state, now, o.used)
  if not o.admitted and not state.observed then
    state.observed = copy_of(s)
  end
  if o.admitted then
    record(s, now, window, o.used, o.expired, o.is_stepped_back, o.stamp, limit.group,
      countable(cost, o.used))
  elseif o.is_stepped_back then
    forget_expired(s, now, o.used, o.expired, true)
  end
  local observed = state.observed
  if observed then
    local used, expired, is_stepped_back = view(observed, now, window)
    record(observed, now, window, used, expired, is_stepped_back, o.stamp, limit.group, countable(cost, used))
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
  local used = view(state.accepted, now, limit.window)
  return math.min(cost, math.max(0, soft_of(limit, state, now, used) - used))
end

local function refund(limit, state, now, units, recorded)
  if not state.observed then
    -- A refunded call was still observed, so the two series differ from now on.
    state.observed = copy_of(state.accepted)
  end
  repair_observed(limit, state, now)
  state.is_changed = true
  return refund_series(state.accepted, now, limit.window, limit.group, units, recorded)
end

local function retention(limit)
  return limit.window
end

-- Returns the time at which committing the outcome, decided at `now`, records its units.
local function recorded_time(_, o)
  return o.recorded
end

-- Returns the units that committing the admitted outcome records.
local function recorded_units(_, o, cost)
  return countable(cost, o.used)
end

local function encode_outcome(_, o)
  return struct.pack('<Bddddddd', o.zone, o.factor, o.soft, o.used, o.not_before, o.used_after, o.recorded,
    o.resets_at)
end
