-- fixed_window: the twin of fixed_window.rs. Change both or neither.
--   limit    <d limit> <d window>
--   state    <B 'F'> <d ends at> <d counted>
--   outcome  <B admitted> <d used before> <d ends at>

local function read(argument, at)
  local limit = {}
  limit.limit, limit.window, at = struct.unpack('<dd', argument, at)
  return limit, at
end

local function load(key)
  local text = redis.call('GET', key)
  if not text then
    return {ends_at = 0, counted = 0}
  end
  check_state(text, 70, 17)
  local _, ends_at, counted = struct.unpack('<Bdd', text)
  return {ends_at = ends_at, counted = counted, is_known = true}
end

local function save(key, _, state, now)
  if state.counted == 0 then
    if state.is_known then
      redis.call('DEL', key)
    end
    return
  end
  local text = struct.pack('<Bdd', 70, state.ends_at, state.counted)
  redis.call('SET', key, text, 'PX', time_to_live(state.ends_at, now))
end

-- Returns the window that counts at `now`: its end, its count, and whether the clock went back by more than a
-- window.
local function count_at(limit, state, now)
  local starts_at = now - now % limit.window
  local ends_at = starts_at + limit.window
  if state.ends_at <= starts_at or state.counted == 0 then
    return ends_at, 0, false
  end
  -- The state's window starts more than a window in the future.
  if state.ends_at > now + 2 * limit.window then
    return ends_at, state.counted, true
  end
  -- The state's window is the current one, the next one (the clock went back), or one of another length (the
  -- limit changed).
  if state.ends_at > ends_at then
    local before = state.ends_at - 1
    ends_at = before - before % limit.window + limit.window
  end
  return ends_at, state.counted, false
end

local function decide(limit, state, now, _, cost, needed)
  local ends_at, used, is_stepped_back = count_at(limit, state, now)
  needed = needed or cost
  local admitted = needed <= limit.limit - used or needed == 0
  return {admitted = admitted, used = used, ends_at = ends_at, is_stepped_back = is_stepped_back}
end

local function commit(_, state, _, cost, outcome)
  local is_counting = outcome.admitted and cost > 0
  if is_counting or outcome.is_stepped_back then
    state.ends_at = outcome.ends_at
    -- A cost that overdraws the limit may be too large to count.
    state.counted = math.min(outcome.used + (is_counting and cost or 0), 2 ^ 53 - 1)
    state.is_changed = true
  end
end

local function available(limit, state, now, cost)
  local _, used = count_at(limit, state, now)
  return math.min(cost, math.max(0, limit.limit - used))
end

local function refund(limit, state, now, units, recorded)
  -- Refund units only to the window that counted them. If the length of the window changed, that is unknown,
  -- and the units could be those of other calls.
  local is_this_window = recorded < 0 or recorded - recorded % limit.window + limit.window == state.ends_at
  if now >= state.ends_at or not is_this_window then
    return 0
  end
  local refunded = math.min(units, state.counted)
  state.counted = state.counted - refunded
  return refunded
end

local function retention(limit)
  return limit.window
end

local function encode_outcome(_, o)
  return struct.pack('<Bdd', o.admitted and 1 or 0, o.used, o.ends_at)
end
