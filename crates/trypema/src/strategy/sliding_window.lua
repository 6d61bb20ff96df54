-- sliding_window: the twin of sliding_window.rs. Change both or neither.
--   limit    <d limit> <d window>
--   state    <B 'W'> <d ends at> <I4 previous> <I4 current> <I6 window> <I3 number of the count>
--   outcome  <B admitted> <d ends at> <d previous> <d current>, the counts as they were before

local MAX_LIMIT = 2 ^ 32 - 1

local function read(argument, at)
  local limit = {}
  limit.limit, limit.window, at = unpack('<dd', argument, at)
  return limit, at
end

-- Reads a state, which `save` below, quick/sliding_window.lua or quick/refund/sliding_window.lua wrote.
local function load(key)
  local text = call('GET', key)
  if not text then
    return {ends_at = 0, previous = 0, current = 0, window = 0, count = 0}
  end
  require('state')(text, STATE_LETTER, 26)
  local state = {is_known = true}
  local _
  _, state.ends_at, state.previous, state.current, state.window, state.count = unpack('<BdI4I4I6I3', text)
  return state
end

local function save(key, _, state, now)
  local fresh_from = state.ends_at
  if state.current > 0 then
    fresh_from = fresh_from + state.window
  elseif state.previous == 0 then
    if state.is_known then
      call('DEL', key)
    end
    return
  end
  local text =
    pack('<BdI4I4I6I3', STATE_LETTER, state.ends_at, state.previous, state.current, state.window, state.count)
  call('SET', key, text, 'PX', time_to_live(fresh_from, now))
end

-- Returns the two counts at `now`.
local function counts(limit, state, now)
  local starts_at = now - now % limit.window
  local ends_at = starts_at + limit.window
  local known = state.ends_at
  if known + limit.window <= starts_at or state.previous + state.current == 0 then
    return {ends_at = ends_at, previous = 0, current = 0}
  end
  if known <= starts_at then
    return {ends_at = ends_at, previous = state.current, current = 0}
  end
  if known > now + 2 * limit.window then
    local current = math.min(state.previous + state.current, MAX_LIMIT)
    return {ends_at = ends_at, previous = 0, current = current, is_stepped_back = true}
  end
  if known > ends_at then
    ends_at = known - 1 - (known - 1) % limit.window + limit.window
  end
  return {ends_at = ends_at, previous = state.previous, current = state.current}
end

-- Returns the number of steps of the window that have passed, rounded down: computed at once where that is
-- exact, and five bits at a time otherwise.
local function steps(elapsed, window)
  if elapsed < 2 ^ 33 then
    return math.floor(elapsed * STEPS / window)
  end
  local passed = 0
  for _ = 1, 4 do
    elapsed = elapsed * 32
    local digit = math.floor(elapsed / window)
    passed = passed * 32 + digit
    elapsed = elapsed - digit * window
  end
  return passed
end

-- Returns the estimate at `now`: the weighted count of the previous window, rounded up, plus the current one.
local function estimate(limit, c, now)
  if c.previous == 0 then
    return c.current
  end
  local elapsed = limit.window - math.min(c.ends_at - now, limit.window)
  return ceil(c.previous * (STEPS - steps(elapsed, limit.window)) / STEPS) + c.current
end

local function decide(limit, state, now, _, cost, needed)
  local c = counts(limit, state, now)
  needed = needed or cost
  c.admitted = needed <= limit.limit - estimate(limit, c, now) or needed == 0
  return c
end

local function recorded_units(_, c, cost)
  return math.min(cost, MAX_LIMIT - c.current)
end

local function commit(limit, state, now, cost, c)
  local is_counting = c.admitted and cost > 0
  if is_counting or c.is_stepped_back then
    if c.previous + c.current == 0 then
      state.count = now % COUNTS
    elseif state.window ~= limit.window or c.is_stepped_back then
      state.count = (state.count + 1) % COUNTS
    end
    state.ends_at, state.previous = c.ends_at, c.previous
    -- A cost that overdraws the limit may be too large to count.
    state.current = c.current + (is_counting and recorded_units(limit, c, cost) or 0)
    state.window, state.is_changed = limit.window, true
  end
end

local function available(limit, state, now, cost)
  return math.min(cost, math.max(0, limit.limit - estimate(limit, counts(limit, state, now), now)))
end

-- Subtracts from the state as it is, whatever the windows are now: they only tell what still counts.
local function refund(limit, state, now, units, recorded, window_end, count)
  local starts_at, ends_at = now - now % limit.window, state.ends_at
  if recorded >= 0 and count ~= state.count then
    return 0
  end
  local from_previous, from_current = 0, 0
  -- The previous window's units no longer count once another one has begun, the current one's after the next.
  if ends_at > starts_at and (recorded < 0 or window_end + state.window == ends_at) then
    from_previous = math.min(units, state.previous)
  end
  if ends_at + limit.window > starts_at and (recorded < 0 or window_end == ends_at) then
    from_current = math.min(units - from_previous, state.current)
  end
  state.previous, state.current = state.previous - from_previous, state.current - from_current
  state.is_changed = true
  return from_previous + from_current
end

local function retention(limit)
  return 2 * limit.window
end

local function recorded_time(limit, c, now)
  return math.min(math.max(now, c.ends_at - limit.window), c.ends_at - 1)
end

local function encode_outcome(_, c)
  return pack('<Bddd', c.admitted and 1 or 0, c.ends_at, c.previous, c.current)
end

return {
  read = read, load = load, save = save, decide = decide, commit = commit, available = available, refund = refund,
  retention = retention, recorded_time = recorded_time, encode_outcome = encode_outcome,
  recorded_units = recorded_units,
}
