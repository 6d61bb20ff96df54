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

-- fixed_window.lua in the usual case: the clock and the window are as they were. Returns the outcome and what comes
-- after the limit in `argument`; nothing, and nothing is written, where fixed_window.lua has to look.
local function quick(key, argument, at, now, cost)
  local limit, window, after = unpack('<dd', argument, at)
  local text = call('GET', key)
  local ends_at, used = now - now % window + window, 0
  if text then
    if #text < 17 then
      return
    end
    local tag, stored_end, counted = unpack('<Bdd', text)
    if tag ~= 70 or stored_end > ends_at then
      return
    end
    if stored_end > ends_at - window then
      used = counted
    end
  end
  if cost > limit - used and cost > 0 then
    return pack('<Bdd', 0, used, ends_at), after
  end
  if cost > 0 then
    call('SET', key, pack('<Bdd', 70, ends_at, used + cost), 'PX', time_to_live(ends_at, now))
  end
  return pack('<Bdd', 1, used, ends_at), after
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

-- The window that counts at `now`: its end, what was counted in it, and whether the clock went back by more
-- than a window.
local function counted(limit, state, now)
  local starts_at = now - now % limit.window
  local ends_at = starts_at + limit.window
  if state.ends_at <= starts_at or state.counted == 0 then
    return ends_at, 0, false
  end
  -- The state's window starts in the future by more than a window.
  if state.ends_at > now + 2 * limit.window then
    return ends_at, state.counted, true
  end
  -- The same window, the next one (the clock went back), or one of another length (the limit changed).
  if state.ends_at > ends_at then
    local before = state.ends_at - 1
    ends_at = before - before % limit.window + limit.window
  end
  return ends_at, state.counted, false
end

local function decide(limit, state, now, _, cost)
  local ends_at, used, is_back = counted(limit, state, now)
  local admitted = cost <= limit.limit - used or cost == 0
  return {admitted = admitted, used = used, ends_at = ends_at, is_back = is_back}
end

local function commit(_, state, _, cost, outcome)
  local is_counting = outcome.admitted and cost > 0
  if is_counting or outcome.is_back then
    state.ends_at = outcome.ends_at
    state.counted = outcome.used + (is_counting and cost or 0)
    state.is_changed = true
  end
end

local function fits(limit, state, now, cost)
  local _, used = counted(limit, state, now)
  return math.min(cost, math.max(0, limit.limit - used))
end

local function refund(limit, state, now, units, recorded)
  -- Under a limit of another window it would be taken from others.
  local is_this_window = recorded < 0 or recorded - recorded % limit.window + limit.window == state.ends_at
  if now >= state.ends_at or not is_this_window then
    return 0
  end
  local refunded = math.min(units, state.counted)
  state.counted = state.counted - refunded
  return refunded
end

local function memory(limit)
  return limit.window
end

local function facts(_, o)
  return struct.pack('<Bdd', o.admitted and 1 or 0, o.used, o.ends_at)
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
