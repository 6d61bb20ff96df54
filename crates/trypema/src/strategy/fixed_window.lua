-- fixed_window: the twin of fixed_window.rs. Change both or neither.
--   limit    <d limit> <d window>, or for a calendar <d limit> <d 0> <d longest window> <d boundary> × 4:
--            of the window that contains the caller's present, the one before it and the one after it
--   state    <B 'F'> <d ends at> <d counted> <I3 number of the count>
--   outcome  <B admitted> <d used before> <d ends at>

local function read(argument, at)
  local limit = {}
  limit.limit, limit.window, at = unpack('<dd', argument, at)
  if limit.window == 0 then
    local b = {}
    limit.longest, b[1], b[2], b[3], b[4], at = unpack('<ddddd', argument, at)
    limit.boundaries = b
  end
  return limit, at
end

-- Reads a state, which `save` below, quick/fixed_window.lua or quick/refund/fixed_window.lua wrote.
local function load(key)
  local text = call('GET', key)
  if not text then
    return {ends_at = 0, counted = 0, count = 0}
  end
  require('state')(text, STATE_LETTER, 20)
  local _, ends_at, counted, count = unpack('<BddI3', text)
  return {ends_at = ends_at, counted = counted, count = count, is_known = true}
end

local function save(key, _, state, now)
  if state.counted == 0 then
    if state.is_known then
      call('DEL', key)
    end
    return
  end
  local text = pack('<BddI3', STATE_LETTER, state.ends_at, state.counted, state.count)
  call('SET', key, text, 'PX', time_to_live(state.ends_at, now))
end

-- Returns the start and the end of the window that contains `moment` and, for a calendar, the end of the next one if
-- it is known. Returns nothing for a moment outside of the boundaries of a calendar.
local function window_at(limit, moment)
  local b = limit.boundaries
  if not b then
    local starts_at = moment - moment % limit.window
    return starts_at, starts_at + limit.window
  end
  for i = 1, 3 do
    if b[i] <= moment and moment < b[i + 1] then
      return b[i], b[i + 1], b[i + 2]
    end
  end
end

-- Returns the same as `count_at` if the caller's clock differs from the time by more than a window, so that the
-- boundaries are unknown: the stored window goes on, or else one begins now, as long as the longest one.
local function count_without_boundaries(limit, state, now)
  if state.ends_at <= now or state.counted == 0 then
    return now + limit.longest, 0, false
  end
  if state.ends_at > now + 2 * limit.longest then
    return now + limit.longest, state.counted, true
  end
  return state.ends_at, state.counted, false
end

-- Returns the window that counts at `now`: its end, its count, and whether all history counts as happening now,
-- because the clock went back by more than a window, or because the state's window is none of this calendar's.
local function count_at(limit, state, now)
  local starts_at, ends_at, next_end = window_at(limit, now)
  if not starts_at then
    return count_without_boundaries(limit, state, now)
  end
  if state.ends_at <= starts_at or state.counted == 0 then
    return ends_at, 0, false
  end
  if state.ends_at <= ends_at then
    return ends_at, state.counted, false
  end
  if limit.boundaries then
    -- The state's window is the next one, unless it is one of other windows (the limit changed), or starts more than a
    -- window in the future.
    local is_next = state.ends_at == next_end
    return is_next and next_end or ends_at, state.counted, not is_next
  end
  -- The state's window is the next one (the clock went back), or one of another length (the limit changed), unless it
  -- starts more than a window in the future.
  if state.ends_at > now + 2 * limit.window then
    return ends_at, state.counted, true
  end
  local before = state.ends_at - 1
  return before - before % limit.window + limit.window, state.counted, false
end

local function decide(limit, state, now, _, cost, needed)
  local ends_at, used, is_stepped_back = count_at(limit, state, now)
  needed = needed or cost
  local admitted = needed <= limit.limit - used or needed == 0
  return {admitted = admitted, used = used, ends_at = ends_at, is_stepped_back = is_stepped_back}
end

local function recorded_units(_, outcome, cost)
  return math.min(cost, MAX_EXACT - outcome.used)
end

local function commit(limit, state, now, cost, outcome)
  local is_counting = outcome.admitted and cost > 0
  if is_counting or outcome.is_stepped_back then
    if outcome.used == 0 then
      state.count = now % COUNTS
    end
    state.ends_at = outcome.ends_at
    -- A cost that overdraws the limit may be too large to count.
    state.counted = outcome.used + (is_counting and recorded_units(limit, outcome, cost) or 0)
    state.is_changed = true
  end
end

local function available(limit, state, now, cost)
  local _, used = count_at(limit, state, now)
  return math.min(cost, math.max(0, limit.limit - used))
end

-- Removes the units from the count that they joined, until it ends, also if the limit has changed.
local function refund(_, state, now, units, recorded, window_end, count)
  if now >= state.ends_at or recorded >= 0 and (window_end ~= state.ends_at or count ~= state.count) then
    return 0
  end
  local refunded = math.min(units, state.counted)
  state.counted, state.is_changed = state.counted - refunded, true
  return refunded
end

local function retention(limit)
  return limit.longest or limit.window
end

local function recorded_time(limit, o, now)
  local starts_at = window_at(limit, o.ends_at - 1) or now
  return math.min(math.max(now, starts_at), o.ends_at - 1)
end

local function encode_outcome(_, o)
  return pack('<Bdd', o.admitted and 1 or 0, o.used, o.ends_at)
end

return {
  read = read, load = load, save = save, decide = decide, commit = commit, available = available, refund = refund,
  retention = retention, recorded_time = recorded_time, encode_outcome = encode_outcome,
  recorded_units = recorded_units,
}
