-- abuse: the twin of abuse.rs. Change both or neither.
--   limit    for the short and the long tier <d window> <d threshold> <d block>, then
--            <B attempts during a block: 0 do not count, 1 count, 2 count and lengthen it>
--   state    <B 'b'> <d last write> <d short block ends at, 0 = none> <d long block ends at, 0 = none>
--            and a series
--   outcome  <B admitted> <B scope: 0 short, 1 long> <d decided at> <d block ends at, 0 = none>
--            <d not before, -1 = never> <d resets at> <d short count> <d long count>

local series = require('series')

local function read(argument, at)
  local temp, long, blocked_attempts = {}, {}, 0
  temp.window, temp.threshold, temp.block, long.window, long.threshold, long.block, blocked_attempts, at =
    unpack('<ddddddB', argument, at)
  local limit = {temp = temp, long = long}
  limit.is_ignoring, limit.is_lengthening = blocked_attempts == 0, blocked_attempts == 2
  limit.retention = math.max(temp.window, long.window)
  limit.kept = math.max(temp.threshold, long.threshold)
  return limit, at
end

-- Reads a state, which `series.save` wrote.
local function load(key)
  local text = series.load(key, STATE_LETTER, 49)
  if #text == 0 then
    return {text = text, last = 0, temp_ends = 0, long_ends = 0, attempts = series.new()}
  end
  local _, last, temp_ends, long_ends, at = unpack('<Bddd', text)
  local attempts = series.read(key, text, at, 1)[1]
  return {
    text = text, last = last, temp_ends = temp_ends, long_ends = long_ends, attempts = attempts, is_known = true,
  }
end

local function save(key, _, state, now)
  local prefix = pack('<Bddd', STATE_LETTER, state.last, state.temp_ends, state.long_ends)
  series.save(key, state.text, prefix, {state.attempts}, now, math.max(state.temp_ends, state.long_ends))
end

-- Returns the end of a block that has not ended at `from`, with its remaining time counted from `to`. Returns
-- 0 if it has ended.
local function moved(ends_at, from, to)
  if ends_at > from then
    return to + (ends_at - from)
  end
  return 0
end

-- Returns a state as it counts at `now`: the time of the decision, the ends of both blocks, and whether all
-- history counts as happening now.
local function state_at(limit, state, now)
  if state.last > now + limit.retention then
    -- Each block keeps its remaining time.
    return now, moved(state.temp_ends, state.last, now), moved(state.long_ends, state.last, now), true
  end
  local at = math.max(now, state.last)
  return at, moved(state.temp_ends, at, at), moved(state.long_ends, at, at), false
end

-- Returns the attempts in the window of `tier`, and whether the clock went back by more than that.
local function attempts_in(state, tier, at, is_stepped_back)
  if is_stepped_back then
    return state.attempts.closed + state.attempts.open, true
  end
  local used, _, is_series_stepped_back = series.view(state.attempts, at, tier.window)
  return used, is_series_stepped_back
end

-- Returns the time from which on `cost` further attempts reach no threshold of `tier`, after `recorded` were
-- made now.
local function allowed_at(state, tier, at, is_stepped_back, recorded, cost)
  local used, is_series_stepped_back = attempts_in(state, tier, at, is_stepped_back)
  local excess = used + recorded + cost - (tier.threshold - 1)
  if excess <= 0 then
    return at
  end
  if excess <= used then
    return series.leaves_at(state.attempts, at, tier.window, used, is_series_stepped_back, excess)
  end
  return at + tier.window
end

local function decide(limit, state, now, _, cost)
  local temp, long = limit.temp, limit.long
  local at, temp_ends, long_ends, is_stepped_back = state_at(limit, state, now)
  local is_recording = cost > 0 and (temp_ends == 0 and long_ends == 0 or not limit.is_ignoring)
  local recorded = is_recording and cost or 0
  local short_count = math.min(attempts_in(state, temp, at, is_stepped_back) + recorded, limit.kept)
  local long_count = math.min(attempts_in(state, long, at, is_stepped_back) + recorded, limit.kept)
  if is_recording and short_count >= temp.threshold and (temp_ends == 0 or limit.is_lengthening) then
    temp_ends = math.max(temp_ends, at + temp.block)
  end
  if is_recording and long_count >= long.threshold and (long_ends == 0 or limit.is_lengthening) then
    long_ends = math.max(long_ends, at + long.block)
  end
  -- The block that ends last is in force. If both end at the same time, it is the long one.
  local block = math.max(temp_ends, long_ends)
  local used, expired, is_series_stepped_back
  if is_stepped_back then
    used, expired, is_series_stepped_back = state.attempts.closed + state.attempts.open, 0, true
  else
    used, expired, is_series_stepped_back = series.view(state.attempts, at, limit.retention)
  end
  local not_before = 0
  if block > 0 then
    not_before = block
    if cost > math.min(temp.threshold, long.threshold) - 1 then
      not_before = -1
    elseif cost > 0 then
      -- The attempts that this call records count against a repetition of it.
      not_before = math.max(block, allowed_at(state, temp, at, is_stepped_back, recorded, cost),
        allowed_at(state, long, at, is_stepped_back, recorded, cost))
    end
  end
  local forgotten_at
  if is_recording then
    forgotten_at = at + limit.retention
  else
    forgotten_at = series.empty_at(state.attempts, at, limit.retention, used, is_series_stepped_back)
  end
  return {
    admitted = block == 0, is_recording = is_recording, at = at, block = block, temp_ends = temp_ends,
    long_ends = long_ends, scope = long_ends >= temp_ends and 1 or 0,
    not_before = not_before, resets_at = math.max(block, forgotten_at), short_count = short_count,
    long_count = long_count, used = used, expired = expired, is_stepped_back = is_series_stepped_back,
  }
end

local function commit(limit, state, _, cost, o)
  if not o.is_recording and not o.is_stepped_back then
    return
  end
  local s = state.attempts
  if o.is_recording then
    -- An attempt counts when it is made, so a later stamp is ignored.
    series.record(s, o.at, limit.retention, o.used, o.expired, o.is_stepped_back, o.at, 0, math.min(cost, limit.kept))
    series.keep_newest(s, limit.kept)
  else
    series.forget_expired(s, o.at, o.used, o.expired, o.is_stepped_back)
  end
  state.temp_ends, state.long_ends, state.last = o.temp_ends, o.long_ends, o.at
  state.is_changed = true
end

local function available(limit, state, now, cost)
  local seen = decide(limit, state, now, now, 0)
  if seen.block > 0 then
    return 0
  end
  local short = math.max(0, limit.temp.threshold - 1 - seen.short_count)
  local long = math.max(0, limit.long.threshold - 1 - seen.long_count)
  return math.min(short, long, cost)
end

local function refund(limit, state, now, units, recorded)
  state.is_changed = true
  return series.refund(state.attempts, math.max(now, state.last), limit.retention, 0, units, recorded)
end

-- Blocks for `duration` from `now`, unless a block already lasts longer.
local function block_for(state, now, duration, scope)
  now = math.max(now, state.last)
  local ends_at = math.min(now + duration, MAX_EXACT)
  if scope == 1 then
    state.long_ends = math.max(state.long_ends, ends_at)
  else
    state.temp_ends = math.max(state.temp_ends, ends_at)
  end
  state.last, state.is_changed = now, true
end

local function is_blocked(state, now)
  return math.max(state.temp_ends, state.long_ends) > now
end

local function retention(limit)
  return limit.retention
end

local function recorded_time(_, o)
  return o.at
end

local function encode_outcome(_, o)
  return pack('<BBdddddd', o.admitted and 1 or 0, o.scope, o.at, o.block, o.not_before, o.resets_at,
    o.short_count, o.long_count)
end

-- Counts the attempts that an instance denied because of a block that it remembered, if a block is still in
-- force. No units are leased. The twin of abuse/lease.rs: change both or neither.
local function lease(limit, state, now, lease)
  local outcome = decide(limit, state, now, now, 0)
  if outcome.block > 0 and lease.reported > 0 then
    outcome = decide(limit, state, now, now, lease.reported)
    commit(limit, state, now, lease.reported, outcome)
  end
  return 0, outcome
end

return {
  read = read, load = load, save = save, decide = decide, commit = commit, available = available, refund = refund,
  retention = retention, recorded_time = recorded_time, encode_outcome = encode_outcome, lease = lease,
  block_for = block_for, is_blocked = is_blocked,
}
