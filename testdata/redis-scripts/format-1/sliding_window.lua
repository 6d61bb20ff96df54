-- What every script starts with: the time, asked for once, and what the strategies do with it.

-- Looked up once: each use costs less.
local call, pack, unpack, ceil = redis.call, struct.pack, struct.unpack, math.ceil

-- Given times are the callers' own, and their clocks may differ by this much: keys live that much longer.
local CLOCKS_DIFFER_MS = 60000
local extra_ms = 0

-- The time to go by: the one that was given, or the server's.
local function time_from(given)
  if given >= 0 then
    extra_ms = CLOCKS_DIFFER_MS
    return given
  end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- In whole milliseconds, how long a key must live that matters until `moment`.
local function time_to_live(moment, now)
  return math.max(1, ceil((moment - now) / 1000)) + extra_ms
end

-- A string that some other program or strategy wrote is left alone: a state has at least so many bytes, the first of
-- which is its strategy's tag.
local function check_state(text, tag, bytes)
  if #text < bytes or text:byte() ~= tag then
    error('the key holds something that is not a state of this strategy', 0)
  end
end

local quick

-- sliding_window.lua in the usual case: the clock and the window are as they were, and steps can be counted at once.
-- Returns the outcome and what comes after the limit in `argument`; nothing, and nothing is written, where
-- sliding_window.lua has to look.
local function quick(key, argument, at, now, cost)
  local limit, window, after = unpack('<dd', argument, at)
  local text = call('GET', key)
  local starts_at = now - now % window
  local ends_at, previous, current = starts_at + window, 0, 0
  if text then
    if #text < 23 then
      return
    end
    local tag, stored_end, stored_previous, stored_current = unpack('<BdI4I4', text)
    if tag ~= 87 or stored_end > ends_at or window > 2 ^ 33 then
      return
    end
    if stored_end > starts_at then
      previous, current = stored_previous, stored_current
    elseif stored_end + window > starts_at then
      previous = stored_current
    end
  end
  local used = current
  if previous > 0 then
    used = used + ceil(previous * (2 ^ 20 - math.floor((now - starts_at) * 2 ^ 20 / window)) / 2 ^ 20)
  end
  if cost > limit - used and cost > 0 then
    return pack('<Bddd', 0, ends_at, previous, current), after
  end
  if cost > 0 then
    local written = pack('<BdI4I4I6', 87, ends_at, previous, current + cost, window)
    call('SET', key, written, 'PX', time_to_live(ends_at + window, now))
  end
  return pack('<Bddd', 1, ends_at, previous, current), after
end

-- The start of `single`: the usual case is over before anything else of the strategy is made.
local given, times, cost, at = unpack('<dI4d', ARGV[1])
local now = time_from(given)
if quick and times == 1 then
  local outcome = quick(KEYS[1], ARGV[1], at, now, cost)
  if outcome then
    return pack('<dI4', now, 1) .. outcome
  end
end


-- sliding_window: the twin of sliding_window.rs. Change both or neither.
--   limit    <d limit> <d window>
--   state    <B 'W'> <d ends at> <I4 previous> <I4 current> <I6 window>
--   outcome  <B admitted> <d ends at> <d previous> <d current>, the counts as they were before

local STEPS = 2 ^ 20
local MAX_LIMIT = 2 ^ 32 - 1

local function read(argument, at)
  local limit = {}
  limit.limit, limit.window, at = struct.unpack('<dd', argument, at)
  return limit, at
end

local function load(key)
  local text = redis.call('GET', key)
  if not text then
    return {ends_at = 0, previous = 0, current = 0, window = 0}
  end
  check_state(text, 87, 23)
  local _, ends_at, previous, current, window = struct.unpack('<BdI4I4I6', text)
  return {ends_at = ends_at, previous = previous, current = current, window = window, is_known = true}
end

local function save(key, _, state, now)
  local fresh_from = state.ends_at
  if state.current > 0 then
    fresh_from = fresh_from + state.window
  elseif state.previous == 0 then
    if state.is_known then
      redis.call('DEL', key)
    end
    return
  end
  local text = struct.pack('<BdI4I4I6', 87, state.ends_at, state.previous, state.current, state.window)
  redis.call('SET', key, text, 'PX', time_to_live(fresh_from, now))
end

-- The two counts as they stand at `now`.
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
    return {ends_at = ends_at, previous = 0, current = current, is_back = true}
  end
  if known > ends_at then
    ends_at = known - 1 - (known - 1) % limit.window + limit.window
  end
  return {ends_at = ends_at, previous = state.previous, current = state.current}
end

-- How many steps of its window have passed, rounded down: at once where that is exact, else five bits at a time.
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

-- What is used at `now`, the previous window weighed and rounded up.
local function estimate(limit, c, now)
  if c.previous == 0 then
    return c.current
  end
  local elapsed = limit.window - math.min(c.ends_at - now, limit.window)
  return math.ceil(c.previous * (STEPS - steps(elapsed, limit.window)) / STEPS) + c.current
end

local function decide(limit, state, now, _, cost)
  local c = counts(limit, state, now)
  c.admitted = cost <= limit.limit - estimate(limit, c, now) or cost == 0
  return c
end

local function commit(limit, state, _, cost, c)
  local is_counting = c.admitted and cost > 0
  if is_counting or c.is_back then
    state.ends_at, state.previous = c.ends_at, c.previous
    state.current = c.current + (is_counting and cost or 0)
    state.window, state.is_changed = limit.window, true
  end
end

local function fits(limit, state, now, cost)
  return math.min(cost, math.max(0, limit.limit - estimate(limit, counts(limit, state, now), now)))
end

local function refund(limit, state, now, units, recorded)
  local c = counts(limit, state, now)
  local starts_at = c.ends_at - limit.window
  local from_previous, from_current = 0, 0
  -- Under a limit of another window it would be taken from others.
  local is_aligned = state.ends_at % limit.window == 0
  if recorded < 0 or is_aligned and recorded < starts_at and recorded + limit.window >= starts_at then
    from_previous = math.min(units, c.previous)
  end
  if recorded < 0 or is_aligned and recorded >= starts_at and recorded < c.ends_at then
    from_current = math.min(units - from_previous, c.current)
  end
  state.ends_at, state.previous = c.ends_at, c.previous - from_previous
  state.current, state.window = c.current - from_current, limit.window
  return from_previous + from_current
end

local function memory(limit)
  return 2 * limit.window
end

local function facts(_, c)
  return struct.pack('<Bddd', c.admitted and 1 or 0, c.ends_at, c.previous, c.current)
end

-- Takes `cost` for each of `times` callers, one after the other, at the same moment. Adds to `reply`, for each
-- stretch of callers that get the same answer, <I4 how many> and the outcome. Of admitted callers it is the
-- first one's; those after it find what it spent, and so on.
local function take(limit, state, now, cost, times, reply)
  -- Where units are pending, each answer looks ahead for itself.
  local is_pending = state.pending and #state.pending > 0
  if times > 1 and cost > 0 and not is_pending then
    local together = math.min(times, math.floor(fits(limit, state, now, cost * times) / cost))
    if together > 1 then
      local outcome = decide(limit, state, now, now, cost)
      commit(limit, state, now, cost * together, outcome)
      reply[#reply + 1] = struct.pack('<I4', together) .. facts(limit, outcome)
      times = times - together
    end
  end
  while times > 0 do
    local was_changed = state.is_changed
    state.is_changed = false
    local outcome = decide(limit, state, now, now, cost)
    commit(limit, state, now, cost, outcome)
    -- A call that changed nothing answers for all that follow.
    local count = state.is_changed and 1 or times
    state.is_changed = state.is_changed or was_changed
    reply[#reply + 1] = struct.pack('<I4', count) .. facts(limit, outcome)
    times = times - count
  end
end

-- One key, one strategy, one cost: what nearly every call is.
-- KEYS[1]  the state
-- ARGV[1]  <d now, -1 = the server's> <I4 callers> <d cost>, then the limit
-- returns  <d now>, then stretches as `take` adds them
local limit = read(ARGV[1], at)
local state = load(KEYS[1])
local reply = {struct.pack('<d', now)}
take(limit, state, now, cost, times, reply)
if state.is_changed then
  save(KEYS[1], limit, state, now)
end
return table.concat(reply)
