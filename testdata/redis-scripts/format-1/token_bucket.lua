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

-- token_bucket.lua in the usual case: the limits and the clock are as they were, and nothing is pending. Returns the
-- outcome and what comes after the limits in `argument`; nothing, and nothing is written, where token_bucket.lua has to
-- look.
local function quick(key, argument, at, now, cost)
  local count
  count, at = unpack('<B', argument, at)
  local text = call('GET', key)
  local last, place = 0, 0
  if text then
    if #text < 10 + 14 * count then
      return
    end
    local tag, counts
    tag, counts, last, place = unpack('<BBd', text)
    if tag ~= 84 or counts ~= count % 16 or last > now then
      return
    end
  end
  local written, owed_before, failed, paid_after = '', '', 255, 0
  for i = 1, count do
    local capacity, refill, unit, drain, next_at = unpack('<dddd', argument, at)
    at = next_at
    local owed = 0
    if text then
      local stored_unit
      owed, stored_unit, place = unpack('<I7I7', text, place)
      if stored_unit ~= unit then
        return
      end
      if now - last >= refill then
        owed = 0
      else
        owed = math.max(0, math.min(owed, capacity * unit) - (now - last) * drain)
      end
    end
    if cost > capacity or cost * unit > capacity * unit - owed then
      failed = math.min(failed, i - 1)
    end
    local after = owed + cost * unit
    paid_after = math.max(paid_after, ceil(after / drain))
    written = written .. pack('<I7I7', after, unit)
    owed_before = owed_before .. pack('<d', owed)
  end
  if failed < 255 and cost > 0 then
    return pack('<BBddd', 0, failed, now, -1, -1) .. owed_before, at
  end
  if cost > 0 then
    written = pack('<BBd', 84, count % 16, now) .. written
    call('SET', key, written, 'PX', time_to_live(now + paid_after, now))
  end
  return pack('<BBddd', 1, 0, now, -1, -1) .. owed_before, at
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

-- debt: the twin of debt.rs, what is owed to a limit now and later. Change both or neither.

-- Pending tokens are coalesced into at most this many moments.
local MAX_PENDING = 8

-- What is left of `owed` after `elapsed`.
local function drained(l, owed, elapsed)
  if elapsed >= l.refill then
    return 0
  end
  return math.max(0, owed - elapsed * l.drain)
end

-- a * b / c rounded up and at most `most`, exactly: the product alone may be too large for a number.
local function scaled(a, b, c, most)
  local whole, rest = math.floor(a / c), a % c
  local quotient, remainder = 0, 0
  for bit = 52, 0, -1 do
    quotient, remainder = quotient * 2, remainder * 2
    if remainder >= c then
      quotient, remainder = quotient + 1, remainder - c
    end
    if math.floor(b / 2 ^ bit) % 2 == 1 then
      quotient = quotient + whole
      if remainder >= c - rest then
        quotient, remainder = quotient + 1, remainder - (c - rest)
      else
        remainder = remainder + rest
      end
    end
    if quotient >= most then
      return most
    end
  end
  if remainder > 0 then
    quotient = quotient + 1
  end
  return math.min(quotient, most)
end

-- Whether a / b is more than c / d, exactly.
local function is_more(a, b, c, d)
  local whole, other = math.floor(a / b), math.floor(c / d)
  if whole ~= other then
    return whole > other
  end
  local rest, other_rest = a % b, c % d
  if rest == 0 or other_rest == 0 then
    return rest > 0
  end
  return is_more(d, other_rest, b, rest)
end

-- The units of `l` in `tokens`, at most its capacity.
local function units_of(l, tokens)
  return math.min(tokens, l.capacity) * l.unit
end

-- Adds to a list in the order of time; where it is full, the two closest moments become their later one.
local function insert_pending(list, stamp, tokens)
  local position = 1
  while list[position] and list[position].stamp < stamp do
    position = position + 1
  end
  if list[position] and list[position].stamp == stamp then
    list[position] = {stamp = stamp, tokens = list[position].tokens + tokens}
  else
    table.insert(list, position, {stamp = stamp, tokens = tokens})
  end
  if #list > MAX_PENDING then
    local closest = 1
    for i = 2, #list - 1 do
      if list[i + 1].stamp - list[i].stamp < list[closest + 1].stamp - list[closest].stamp then
        closest = i
      end
    end
    local together = list[closest].tokens + list[closest + 1].tokens
    list[closest + 1] = {stamp = list[closest + 1].stamp, tokens = together}
    table.remove(list, closest)
  end
end

-- The first moment, from `at` on, at which what is owed has fallen to `room`, if `due` is owed at `at` and what is
-- pending after it comes on top.
local function falls_to(l, due, at, room, pending)
  local left, to_come = {}, 0
  for i = #pending, 1, -1 do
    if pending[i].stamp > at then
      to_come = to_come + units_of(l, pending[i].tokens)
    end
    left[i] = to_come
  end
  local from = at
  for i = 1, #pending do
    local stamp = pending[i].stamp
    if stamp > at then
      if left[i] <= room then
        local moment = from + math.ceil(math.max(0, due - (room - left[i])) / l.drain)
        if moment <= stamp then
          return moment
        end
      end
      due = math.min(drained(l, due, stamp - from) + units_of(l, pending[i].tokens), l.full)
      from = stamp
    end
  end
  return from + math.ceil(math.max(0, due - room) / l.drain)
end

-- Takes up to `tokens` of those that count from `stamp` on, and says how many. Tokens that were coalesced with later ones
-- are among those: what is taken there in place of another's is stricter.
local function remove_pending(list, stamp, tokens)
  local left, i = tokens, 1
  while list[i] do
    if list[i].stamp >= stamp then
      local removed = math.min(left, list[i].tokens)
      list[i].tokens = list[i].tokens - removed
      left = left - removed
    end
    if list[i].tokens == 0 then
      table.remove(list, i)
    else
      i = i + 1
    end
  end
  return tokens - left
end

-- token_bucket: the twin of token_bucket.rs, with its limits and debts. Change both or neither.
--   limit    <B number of limits>, then for each <d capacity> <d refill> <d unit> <d drain>
--   state    <B 'T'> <B limits (0 = 16) + 16 x pending> <d last>, for each limit <I7 owed> <I7 unit>, for each pending <d stamp> <I7 tokens>
--   outcome  <B admitted> <B first failing limit> <d decided at> <d not before, -1 = ask what is owed>
--            <d resets at, -1 = ask what is owed>, then for each limit <d owed before>

local function read(argument, at)
  local count
  count, at = struct.unpack('<B', argument, at)
  local limits = {memory = 0}
  for i = 1, count do
    local l = {}
    l.capacity, l.refill, l.unit, l.drain, at = struct.unpack('<dddd', argument, at)
    l.full = l.capacity * l.unit
    limits.memory = math.max(limits.memory, l.refill)
    limits[i] = l
  end
  return limits, at
end

local function load(key)
  local text = redis.call('GET', key)
  if not text then
    return {last = 0, debts = {}, pending = {}}
  end
  check_state(text, 84, 10)
  local _, counts, last, at = struct.unpack('<BBd', text)
  local state = {debts = {}, pending = {}, is_known = true}
  local is_owing = counts >= 16
  for i = 1, (counts - 1) % 16 + 1 do
    local debt = {}
    debt.owed, debt.unit, at = struct.unpack('<I7I7', text, at)
    is_owing = is_owing or debt.owed > 0
    state.debts[i] = debt
  end
  for i = 1, math.floor(counts / 16) do
    local pending = {}
    pending.stamp, pending.tokens, at = struct.unpack('<dI7', text, at)
    state.pending[i] = pending
  end
  -- Where nothing is owed it does not matter since when.
  state.last = is_owing and last or 0
  return state
end

-- When every debt and everything pending is paid, at the latest.
local function paid_at(limits, state)
  local from, tokens, latest = state.last, 0, 0
  for _, pending in ipairs(state.pending) do
    from = math.max(from, pending.stamp)
    tokens = tokens + pending.tokens
  end
  for i, debt in ipairs(state.debts) do
    local owed = debt.owed + tokens * debt.unit
    if owed > 0 then
      latest = math.max(latest, from + math.ceil(owed / limits[i].drain))
    end
  end
  return latest
end

local function save(key, limits, state, now)
  local parts = {struct.pack('<BBd', 84, #state.debts % 16 + 16 * #state.pending, state.last)}
  for _, debt in ipairs(state.debts) do
    parts[#parts + 1] = struct.pack('<I7I7', debt.owed, debt.unit)
  end
  for _, pending in ipairs(state.pending) do
    parts[#parts + 1] = struct.pack('<dI7', pending.stamp, pending.tokens)
  end
  if state.is_repaired then
    -- What is owed is still in the units of other limits; its time to live reaches beyond any of them.
    redis.call('SET', key, table.concat(parts), 'KEEPTTL')
    return
  end
  local fresh_from = paid_at(limits, state)
  if fresh_from > 0 then
    redis.call('SET', key, table.concat(parts), 'PX', time_to_live(fresh_from, now))
  elseif state.is_known then
    redis.call('DEL', key)
  end
end

-- What was owed to the limit at `position`, in its units. Where the number of limits has changed it is not known
-- which one that was: then it is the largest debt, which is stricter.
local function debt_to(limits, state, position)
  local debt = state.debts[position]
  if #state.debts ~= #limits then
    debt = state.debts[1]
    for i = 2, #state.debts do
      local other = state.debts[i]
      if is_more(other.owed, other.unit, debt.owed, debt.unit) then
        debt = other
      end
    end
  end
  local l = limits[position]
  if not debt then
    return 0
  end
  if debt.unit == l.unit then
    return math.min(debt.owed, l.full)
  end
  return scaled(debt.owed, l.unit, debt.unit, l.full)
end

-- What is owed to the limit at `position` at `at`, and how much comes into force only later.
local function owed_at(limits, state, position, at)
  local l = limits[position]
  local due, from, to_come = debt_to(limits, state, position), state.last, 0
  for _, pending in ipairs(state.pending) do
    local units = units_of(l, pending.tokens)
    if pending.stamp <= at then
      due = math.min(drained(l, due, math.max(0, pending.stamp - from)) + units, l.full)
      from = math.max(from, pending.stamp)
    else
      to_come = to_come + units
    end
  end
  return drained(l, due, math.max(0, at - from)), math.min(to_come, l.full)
end

-- The moment debts are counted at: not before the last one, unless the clock went back by more than any limit
-- takes to refill, when all history counts as happening now.
local function present_of(limits, state, now)
  if state.last > now + limits.memory then
    return now
  end
  return math.max(now, state.last)
end

-- The time at which a call counts that does so later than at `at`; nil if it does not.
local function postponed_to(limits, at, now, stamp)
  local latest = math.min(stamp, at + limits.memory)
  if stamp > now and latest > at then
    return latest
  end
end

-- Works out when what is owed falls, where some of it is still to come into force.
local function look_ahead(limits, state, now, stamp, cost, o)
  local pending = {}
  if not o.is_back then
    for i, each in ipairs(state.pending) do
      pending[i] = each
    end
  end
  local is_paying = o.admitted and cost > 0
  local postponed = postponed_to(limits, o.at, now, stamp)
  if postponed and is_paying then
    insert_pending(pending, postponed, cost)
  end
  o.not_before, o.resets_at = o.at, o.at
  for i, l in ipairs(limits) do
    local units = units_of(l, cost)
    local due = o.owed[i]
    if not o.is_back then
      due = owed_at(limits, state, i, o.at)
    end
    local paid = 0
    if is_paying and not postponed then
      paid = units
    end
    o.not_before = math.max(o.not_before, falls_to(l, due, o.at, l.full - units, pending))
    o.resets_at = math.max(o.resets_at, falls_to(l, due + paid, o.at, 0, pending))
  end
end

local function decide(limits, state, now, stamp, cost)
  local at = present_of(limits, state, now)
  local o = {
    admitted = true, failed = 0, at = at, stamp = stamp, owed = {}, not_before = -1, resets_at = -1,
    is_back = at < state.last,
  }
  for i, l in ipairs(limits) do
    local due, to_come = owed_at(limits, state, i, at)
    local owed = math.min(due + to_come, l.full)
    o.owed[i] = owed
    local has = cost <= l.capacity and cost * l.unit <= l.full - owed
    if not has and cost > 0 and o.admitted then
      o.admitted, o.failed = false, i - 1
    end
  end
  if #state.pending > 0 or stamp > now then
    look_ahead(limits, state, now, stamp, cost, o)
  end
  return o
end

-- Replaces what is owed, as of `at`.
local function set_debts(limits, state, at, owed)
  state.debts = {}
  local is_owing = false
  for i, l in ipairs(limits) do
    state.debts[i] = {owed = owed[i], unit = l.unit}
    is_owing = is_owing or owed[i] > 0
  end
  local pending = {}
  for _, each in ipairs(state.pending) do
    if each.stamp > at then
      pending[#pending + 1] = each
    end
  end
  state.pending = pending
  -- Where nothing is owed it does not matter since when.
  state.last = (is_owing or #pending > 0) and at or 0
  state.is_changed, state.is_repaired = true, false
end

-- Makes everything due at `at`, after the clock went back to it.
local function repair(state, at)
  local tokens = 0
  for _, pending in ipairs(state.pending) do
    tokens = tokens + pending.tokens
  end
  for _, debt in ipairs(state.debts) do
    debt.owed = math.min(debt.owed + tokens * debt.unit, 2 ^ 53 - 1)
  end
  state.last, state.pending = at, {}
  state.is_changed, state.is_repaired = true, true
end

local function commit(limits, state, now, cost, o)
  if o.is_back then
    repair(state, o.at)
  end
  if not o.admitted or cost == 0 then
    return
  end
  local postponed = postponed_to(limits, o.at, now, o.stamp)
  local owed = {}
  for i, l in ipairs(limits) do
    owed[i] = owed_at(limits, state, i, o.at)
    if not postponed then
      owed[i] = owed[i] + cost * l.unit
    end
  end
  set_debts(limits, state, o.at, owed)
  if postponed then
    insert_pending(state.pending, postponed, cost)
    state.last = o.at
  end
end

local function fits(limits, state, now, cost)
  local seen = decide(limits, state, now, now, 0)
  for i, l in ipairs(limits) do
    cost = math.min(cost, math.floor((l.full - seen.owed[i]) / l.unit))
  end
  return cost
end

local function refund(limits, state, now, tokens, recorded)
  local at = present_of(limits, state, now)
  if at < state.last then
    repair(state, at)
  end
  local from_pending = 0
  if recorded > at then
    from_pending = remove_pending(state.pending, recorded, tokens)
  end
  local left = tokens - from_pending
  local owed, refunded = {}, left
  for i, l in ipairs(limits) do
    local due = owed_at(limits, state, i, at)
    -- What has been paid off since is not given back a second time.
    local paid_for = recorded >= 0 and math.max(0, at - recorded) or 0
    local back = math.min(drained(l, units_of(l, left), paid_for), due)
    owed[i] = due - back
    refunded = math.min(refunded, math.floor(back / l.unit))
  end
  set_debts(limits, state, at, owed)
  return from_pending + refunded
end

local function memory(limits)
  return limits.memory
end

local function facts(_, o)
  local text = struct.pack('<BBddd', o.admitted and 1 or 0, o.failed, o.at, o.not_before, o.resets_at)
  for i = 1, #o.owed do
    text = text .. struct.pack('<d', o.owed[i])
  end
  return text
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
