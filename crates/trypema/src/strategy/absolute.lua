-- absolute: the twin of absolute.rs. Change both or neither.
--   limit    <d capacity> <d window> <d group> <B 1 if sticky: the capacity of a live state takes precedence>
--   state    <B 'A'> <I7 capacity> and a series
--   outcome  <B admitted> <d capacity> <d used before> <d not before, -1 = never> <d used after that wait>
--            <d recorded at> <d resets at>

local series = require('series')

local function read(argument, at)
  local limit = {}
  local sticky
  limit.capacity, limit.window, limit.group, sticky, at = unpack('<dddB', argument, at)
  limit.is_sticky = sticky == 1
  return limit, at
end

-- Reads a state, which `series.save` or quick/series.lua wrote.
local function load(key)
  local text = series.load(key, STATE_LETTER, 32)
  if #text == 0 then
    return {text = text, capacity = 0, series = series.new()}
  end
  local _, capacity, at = unpack('<BI7', text)
  return {text = text, capacity = capacity, series = series.read(key, text, at, 1)[1], is_known = true}
end

local function save(key, _, state, now)
  series.save(key, state.text, pack('<BI7', STATE_LETTER, state.capacity), {state.series}, now, 0)
end

local function decide(limit, state, now, stamp, cost, needed)
  local s, window = state.series, limit.window
  needed = needed or cost
  local used, expired, is_stepped_back = series.view(s, now, window)
  local capacity = limit.is_sticky and used > 0 and state.capacity or limit.capacity
  local admitted = needed <= capacity - used or needed == 0
  stamp = math.min(stamp, now + window)
  local recorded = series.recorded_at(s, now, used, is_stepped_back, stamp)
  local not_before, used_after, resets_at = now, 0, 0
  if admitted and cost > 0 then
    resets_at = recorded + window
  else
    resets_at = series.empty_at(s, now, window, used, is_stepped_back)
  end
  if not admitted then
    not_before, used_after = series.until_fits(s, now, window, used, is_stepped_back, capacity, needed)
  end
  return {
    admitted = admitted, capacity = capacity, used = used, expired = expired,
    is_stepped_back = is_stepped_back, stamp = stamp,
    not_before = not_before, used_after = used_after, recorded = recorded, resets_at = resets_at,
  }
end

local function commit(limit, state, now, cost, outcome)
  local s = state.series
  if outcome.admitted and cost > 0 then
    series.record(s, now, limit.window, outcome.used, outcome.expired, outcome.is_stepped_back, outcome.stamp,
      limit.group, series.countable(cost, outcome.used))
    state.capacity = outcome.capacity
    state.is_changed = true
  elseif outcome.is_stepped_back then
    series.forget_expired(s, now, outcome.used, outcome.expired, true)
    state.is_changed = true
  end
end

local function available(limit, state, now, cost)
  local used = series.view(state.series, now, limit.window)
  local capacity = limit.is_sticky and used > 0 and state.capacity or limit.capacity
  return math.min(cost, math.max(0, capacity - used))
end

local function refund(limit, state, now, units, recorded)
  state.is_changed = true
  return series.refund(state.series, now, limit.window, limit.group, units, recorded)
end

local function retention(limit)
  return limit.window
end

local function recorded_units(_, o, cost)
  return series.countable(cost, o.used)
end

local function encode_outcome(_, o)
  return pack('<Bdddddd', o.admitted and 1 or 0, o.capacity, o.used, o.not_before, o.used_after,
    o.recorded, o.resets_at)
end

return {
  read = read, load = load, save = save, decide = decide, commit = commit, available = available, refund = refund,
  retention = retention, encode_outcome = encode_outcome, recorded_units = recorded_units,
}
