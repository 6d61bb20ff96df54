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


-- The start of `single`: the usual case is over before anything else of the strategy is made.
local given, times, cost, at = unpack('<dI4d', ARGV[1])
local now = time_from(given)
if quick and times == 1 then
  local outcome = quick(KEYS[1], ARGV[1], at, now, cost)
  if outcome then
    return pack('<dI4', now, 1) .. outcome
  end
end

-- series: the twin of series.rs and series/ring.rs. Change both or neither.
--
-- A state made of series is one string: a prefix of its strategy's, the head of each series, then the closed
-- buckets of each, oldest first.
--   head    <I7 first> <I4 stretch> <I7 open> <I6 horizon, + 2^47 if buckets are closed>
--           and, if so, <I7 closed> <I7 oldest> <I7 through> <I3 start> <I3 stored> <I3 room> <B width>
--   bucket  <I6 newest call> <I6, or I7 if width is 7: units counted up to and including it>, both wrapping
-- A short string is read and written whole. A long one is a ring of `room` slots for each series, of which
-- `stored` from `start` on are used, and is changed in place: so a take costs the same however long it is.

local TIME_WRAP = 2 ^ 48
local HAS_CLOSED = 2 ^ 47
-- What one read brings, and the longest string that is written whole.
local WHOLE = 1024
-- A ring that is written anew has room for this share more, so that this happens seldom.
local SPARE = 16
-- Rings above this are written anew when three quarters of them are unused.
local SHRINK_ABOVE = 128

-- `tail` holds the buckets that were closed since the string was read, `pushed` of them. These are as many fields as
-- fit a table that is made at once: one more makes it twice as dear.
local function new_series()
  return {
    first = 0, newest = 0, open = 0, horizon = 0, closed = 0, oldest = 0, through = 0, start = 0, stored = 0,
    room = 0, width = 6, base = 0, tail = '', pushed = 0, key = '', text = '',
  }
end

-- Reads the head at `at` of `text`, what is known of `key`; returns the series and what comes after its head.
local function read_head(key, text, at)
  local s = new_series()
  local stretch
  s.first, stretch, s.open, s.horizon, at = struct.unpack('<I7I4I7I6', text, at)
  s.newest = s.first + stretch
  s.key, s.text = key, text
  if s.horizon >= HAS_CLOSED then
    s.horizon = s.horizon - HAS_CLOSED
    s.closed, s.oldest, s.through, s.start, s.stored, s.room, s.width, at =
      struct.unpack('<I7I7I7I3I3I3B', text, at)
  end
  return s, at
end

-- Tells each series of `list` where its buckets are, when those of the first are `at`.
local function place(list, at)
  for i = 1, #list do
    list[i].base = at - 1
    at = at + list[i].room * (list[i].width + 6)
  end
end

local function head(s)
  local short = struct.pack('<I7I4I7', s.first, s.newest - s.first, s.open)
  if s.stored + s.pushed == 0 and s.room == 0 then
    return short .. struct.pack('<I6', s.horizon)
  end
  return short .. struct.pack('<I6I7I7I7I3I3I3B', s.horizon + HAS_CLOSED,
    s.closed, s.oldest, s.through, s.start, s.stored + s.pushed, s.room, s.width)
end

-- Where closed bucket `index`, counted from 0, is: a string and a place in it.
local function slot(s, index)
  local size = s.width + 6
  if index >= s.stored then
    return s.tail, (index - s.stored) * size + 1
  end
  local at = s.base + (s.start + index) % s.room * size
  if at + size <= #s.text then
    return s.text, at + 1
  end
  return redis.call('GETRANGE', s.key, at, at + size - 1), 1
end

-- When closed bucket `index` had its newest call.
local function stamp_of(s, index)
  local text, at = slot(s, index)
  return s.newest - (s.newest - struct.unpack('<I6', text, at)) % TIME_WRAP
end

local function wrap_of(s)
  if s.width == 6 then
    return 2 ^ 48
  end
  return 2 ^ 53
end

-- The units in the closed buckets after `index`.
local function units_after(s, index)
  local text, at = slot(s, index)
  local format = s.width == 6 and '<I6' or '<I7'
  return (s.through - struct.unpack(format, text, at + 6)) % wrap_of(s)
end

-- The units in the closed buckets up to and including `index`.
local function units_through(s, index)
  return s.closed - units_after(s, index)
end

-- How many closed buckets, from the oldest on, have a `probe` of at most `bound`. Mostly few, so they are
-- looked for in steps that double.
local function partition(s, probe, bound)
  local count = s.stored + s.pushed
  local low, step = 0, 1
  while low + step <= count and probe(s, low + step - 1) <= bound do
    low = low + step
    step = step * 2
  end
  local high = math.min(count, low + step - 1)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if probe(s, middle) <= bound then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- What counts at `now`: units in the window, closed buckets that have left it, and whether the clock went back
-- by more than a window.
local function view(s, now, window)
  local total = s.closed + s.open
  if now >= s.newest + window then
    return 0, 0, false
  end
  if s.newest > now + window then
    return total, 0, total > 0
  end
  if s.closed == 0 or now < s.oldest + window then
    return total, 0, false
  end
  local expired = partition(s, stamp_of, now - window)
  local left = s.closed
  if expired > 0 then
    left = units_after(s, expired - 1)
  end
  return left + s.open, expired, false
end

-- All closed buckets as one string, oldest first.
local function linear(s)
  local size = s.width + 6
  local function slots(from, to)
    local at = s.base + from * size
    local length = (to - from) * size
    if at + length <= #s.text then
      return s.text:sub(at + 1, at + length)
    end
    return redis.call('GETRANGE', s.key, at, at + length - 1)
  end
  if s.stored == 0 then
    return s.tail
  end
  local stop = s.start + s.stored
  if stop <= s.room then
    return slots(s.start, stop) .. s.tail
  end
  return slots(s.start, s.room) .. slots(0, stop - s.room) .. s.tail
end

-- From here on the closed buckets are `text`, and the string is written anew.
local function relocate(s, text)
  s.tail, s.pushed = text, #text / (s.width + 6)
  s.start, s.stored, s.room = 0, 0, 0
end

-- Forgets the `count` oldest closed buckets; `left` units are in the others.
local function drop_oldest(s, count, left)
  local length = s.stored + s.pushed - count
  s.closed = left
  if length <= 0 then
    relocate(s, '')
    s.oldest = 0
    return
  end
  if count <= s.stored and s.stored > 0 then
    s.start = (s.start + count) % s.room
    s.stored = s.stored - count
  else
    relocate(s, linear(s):sub(count * (s.width + 6) + 1))
  end
  if s.room > SHRINK_ABOVE and length * 4 < s.room then
    relocate(s, linear(s))
  end
  s.oldest = stamp_of(s, 0)
end

local function forget(s)
  relocate(s, '')
  s.first, s.newest, s.open, s.closed, s.oldest, s.horizon, s.through, s.width = 0, 0, 0, 0, 0, 0, 0, 6
end

-- Forgets what a view says has left; after a step back of more than a window, moves all history to now.
local function settle(s, now, used, expired, is_back)
  if is_back then
    local horizon = s.horizon
    forget(s)
    s.first, s.newest, s.open, s.horizon = now, now, used, horizon
  elseif used == 0 then
    forget(s)
  elseif expired > 0 then
    drop_oldest(s, expired, math.max(0, used - s.open))
  end
end

-- Gives every closed bucket a wider count.
local function widen(s)
  relocate(s, linear(s))
  local buckets = {}
  for index = 0, s.stored + s.pushed - 1 do
    buckets[index + 1] = struct.pack('<I6I7', stamp_of(s, index) % TIME_WRAP, units_through(s, index))
  end
  s.width = 7
  s.through = s.closed
  relocate(s, table.concat(buckets))
end

local function close(s)
  if s.width == 6 and s.closed + s.open >= 2 ^ 48 then
    widen(s)
  end
  if s.stored + s.pushed == 0 then
    s.oldest = s.newest
  end
  -- The sum of both may be too large for a number, their difference is not.
  s.through = (s.through - (wrap_of(s) - s.open)) % wrap_of(s)
  local format = s.width == 6 and '<I6I6' or '<I6I7'
  s.tail = s.tail .. struct.pack(format, s.newest % TIME_WRAP, s.through)
  s.pushed = s.pushed + 1
  s.closed = s.closed + s.open
end

-- Counts `units` at `stamp`; the rest as `settle`. Returns the moment they are counted at.
local function record(s, now, window, used, expired, is_back, stamp, group, units)
  settle(s, now, used, expired, is_back)
  s.horizon = math.max(s.horizon, window)
  stamp = math.max(stamp, s.newest)
  if s.open > 0 and stamp - s.first < math.max(group, 1) then
    s.open = s.open + units
  else
    if s.open > 0 then
      close(s)
    end
    s.first, s.open = stamp, units
  end
  s.newest = stamp
  return stamp
end

-- The moment that units counted at `stamp` are counted at: never before the newest.
local function recorded_at(s, now, used, is_back, stamp)
  if is_back then
    return math.max(stamp, now)
  end
  if used == 0 then
    return stamp
  end
  return math.max(stamp, s.newest)
end

-- The first moment at which at least `units` of those used have left.
local function leaves_at(s, now, window, used, is_back, units)
  if is_back then
    return now + window
  end
  local staying = math.max(0, used - units)
  if s.open > staying or s.stored + s.pushed == 0 then
    return s.newest + window
  end
  return stamp_of(s, partition(s, units_through, s.closed + s.open - staying - 1)) + window
end

-- When that is, and what is still counted then, rounded up to whole milliseconds from now.
local function left_after(s, now, window, used, is_back, units)
  local at = leaves_at(s, now, window, used, is_back, units)
  local later = now + math.ceil(math.max(0, at - now) / 1000) * 1000
  if is_back or s.newest + window <= later then
    return at, 0
  end
  local gone = partition(s, stamp_of, later - window)
  local staying = s.closed
  if gone > 0 then
    staying = units_after(s, gone - 1)
  end
  return at, staying + s.open
end

-- When `cost` fits under `capacity`, -1 = never, and what is still used after waiting for that.
local function until_fits(s, now, window, used, is_back, capacity, cost)
  if cost > capacity then
    return -1, 0
  end
  return left_after(s, now, window, used, is_back, used - capacity + cost)
end

-- When nothing of what is used counts any more, if nobody calls; 0 if nothing is.
local function empty_at(s, now, window, used, is_back)
  if used == 0 then
    return 0
  end
  return leaves_at(s, now, window, used, is_back, used)
end

-- Units whose newest call is less than `window` old.
local function units_within(s, now, window)
  if s.newest + window <= now then
    return 0
  end
  local before = partition(s, stamp_of, now - window)
  local left = s.closed
  if before > 0 then
    left = units_after(s, before - 1)
  end
  return left + s.open
end

-- Keeps the newest `units` and forgets the rest.
local function keep_newest(s, units)
  s.open = math.min(s.open, units)
  local closed = math.min(s.closed, units - s.open)
  if closed < s.closed then
    drop_oldest(s, partition(s, units_through, s.closed - closed), closed)
  end
end

-- From when on nothing of this counts.
local function series_fresh_from(s)
  if s.closed + s.open == 0 then
    return 0
  end
  return s.newest + s.horizon
end
-- Giving units back to a series: the twin of what series.rs and series/ring.rs do. Change both or neither.

-- The closed buckets from `from` up to, but not including, `to`, with `units` more counted up to each.
local function counted_up(s, from, to, units)
  local format = s.width == 6 and '<I6I6' or '<I6I7'
  local buckets = {}
  for index = from, to - 1 do
    local counted = (s.through - units_after(s, index) + units) % wrap_of(s)
    buckets[#buckets + 1] = struct.pack(format, stamp_of(s, index) % TIME_WRAP, counted)
  end
  return table.concat(buckets)
end

-- Takes up to `units` out of closed bucket `index`, and says how many it had. Either what was counted up to the buckets
-- before it rises, or up to it and those after it falls: whichever are fewer.
local function refund_closed(s, index, units)
  relocate(s, linear(s))
  local before = s.closed
  if index > 0 then
    before = units_after(s, index - 1)
  end
  local refunded = math.min(units, before - units_after(s, index))
  local at = index * (s.width + 6)
  if index < s.pushed / 2 then
    relocate(s, counted_up(s, 0, index, refunded) .. s.tail:sub(at + 1))
  else
    relocate(s, s.tail:sub(1, at) .. counted_up(s, index, s.pushed, -refunded))
    s.through = (s.through - refunded) % wrap_of(s)
  end
  s.closed = s.closed - refunded
  return refunded
end

-- Takes back up to `units` from the bucket that counted them at `moment`, and says how many it had.
local function refund_at(s, moment, group, units)
  if moment >= s.first then
    local refunded = math.min(units, s.open)
    if moment > s.newest then
      refunded = 0
    end
    s.open = s.open - refunded
    return refunded
  end
  local index = partition(s, stamp_of, moment - 1)
  -- A bucket spans less than a group: one that ends later than that is another call's.
  if index == s.stored + s.pushed or stamp_of(s, index) - moment >= math.max(group, 1) then
    return 0
  end
  return refund_closed(s, index, units)
end

-- Takes back up to `units`, the oldest first, and says how many there were.
local function refund_oldest(s, units)
  local from_closed = math.min(units, s.closed)
  if from_closed > 0 then
    relocate(s, linear(s))
    -- The buckets that this empties keep their times, and nothing is left in them.
    local emptied = partition(s, units_through, from_closed)
    local left = s.closed - from_closed
    local format = s.width == 6 and '<I6I6' or '<I6I7'
    local buckets = {}
    for index = 0, emptied - 1 do
      buckets[index + 1] = struct.pack(format, stamp_of(s, index) % TIME_WRAP, (s.through - left) % wrap_of(s))
    end
    relocate(s, table.concat(buckets) .. s.tail:sub(emptied * (s.width + 6) + 1))
    s.closed = left
  end
  local from_open = math.min(units - from_closed, s.open)
  s.open = s.open - from_open
  return from_closed + from_open
end

-- Gives units back to a series, after forgetting what has left it; `recorded` is -1 for the oldest.
local function refund_series(s, now, window, group, units, recorded)
  local used, expired, is_back = view(s, now, window)
  settle(s, now, used, expired, is_back)
  if recorded >= 0 then
    return refund_at(s, recorded, group, units)
  end
  return refund_oldest(s, units)
end
-- How a state made of series is written; series.lua says how it is laid out.

-- The size that the server's allocator gives a string of `bytes` anyway: it has four to each doubling.
local function roomy(bytes)
  local power = 2 ^ math.floor(math.log(bytes + 16) / math.log(2))
  return math.ceil((bytes + 16) / (power / 4)) * (power / 4) - 16
end

-- The string of a state written anew, with spare room if it is long.
local function anew(prefix, list)
  local bytes, longest = #prefix, list[1]
  for i = 1, #list do
    local s = list[i]
    relocate(s, linear(s))
    s.room = s.pushed
    bytes = bytes + 55 + #s.tail
    if s.pushed > longest.pushed then
      longest = s
    end
  end
  if bytes > WHOLE then
    local least = 0
    for i = 1, #list do
      local s = list[i]
      s.room = s.pushed + math.max(8, math.floor(s.pushed / SPARE))
      least = least + (s.room - s.pushed) * (s.width + 6)
    end
    local size = longest.width + 6
    longest.room = longest.room + math.floor((roomy(bytes + least) - bytes - least) / size)
  end
  local heads, rings = {prefix}, {}
  for i = 1, #list do
    local s = list[i]
    heads[i + 1] = head(s)
    rings[i] = s.tail .. string.rep('\0', (s.room - s.pushed) * (s.width + 6))
  end
  return table.concat(heads) .. table.concat(rings)
end

-- Writes the buckets that were closed since into their slots.
local function store_pushed(key, s)
  if s.pushed == 0 then
    return
  end
  local size = s.width + 6
  local at = (s.start + s.stored) % s.room
  local first = math.min(s.pushed, s.room - at)
  redis.call('SETRANGE', key, s.base + at * size, s.tail:sub(1, first * size))
  if first < s.pushed then
    redis.call('SETRANGE', key, s.base, s.tail:sub(first * size + 1))
  end
end

-- Writes a state that was read as `text` and matters until `fresh_from`.
local function save_series(key, text, prefix, list, now, fresh_from)
  if fresh_from == 0 then
    if #text > 0 then
      redis.call('DEL', key)
    end
    return
  end
  local is_in_place = #text >= WHOLE
  for i = 1, #list do
    local s = list[i]
    is_in_place = is_in_place and s.room > 0 and s.stored + s.pushed <= s.room
  end
  if not is_in_place then
    redis.call('SET', key, anew(prefix, list), 'PX', time_to_live(fresh_from, now))
    return
  end
  local heads = {prefix}
  for i = 1, #list do
    store_pushed(key, list[i])
    heads[i + 1] = head(list[i])
  end
  redis.call('SETRANGE', key, 0, table.concat(heads))
  redis.call('PEXPIRE', key, time_to_live(fresh_from, now))
end

-- abuse: the twin of abuse.rs. Change both or neither.
--   limit    for the short and the long tier <d window> <d threshold> <d block>, then <B attempts during a block:
--            0 are ignored, 1 count, 2 count and lengthen it>
--   state    <B 'b'> <d last> <d short block ends at, 0 = none> <d long block ends at, 0 = none> and a series
--   outcome  <B admitted> <B scope: 0 short, 1 long> <d decided at> <d block ends at, 0 = none>
--            <d not before, -1 = never> <d resets at> <d short count> <d long count>

local MAX_EXACT = 2 ^ 53 - 1

local function read(argument, at)
  local temp, long, blocked_attempts = {}, {}, 0
  temp.window, temp.threshold, temp.block, long.window, long.threshold, long.block, blocked_attempts, at =
    struct.unpack('<ddddddB', argument, at)
  local limit = {temp = temp, long = long}
  limit.is_ignoring, limit.is_lengthening = blocked_attempts == 0, blocked_attempts == 2
  limit.memory = math.max(temp.window, long.window)
  limit.kept = math.max(temp.threshold, long.threshold)
  return limit, at
end

local function load(key)
  local text = redis.call('GETRANGE', key, '0', '1023')
  if #text == 0 then
    return {text = text, last = 0, temp_ends = 0, long_ends = 0, attempts = new_series()}
  end
  check_state(text, 98, 49)
  local _, last, temp_ends, long_ends, at = struct.unpack('<Bddd', text)
  local state = {text = text, last = last, temp_ends = temp_ends, long_ends = long_ends, is_known = true}
  state.attempts, at = read_head(key, text, at)
  place({state.attempts}, at)
  return state
end

local function save(key, _, state, now)
  local prefix = struct.pack('<Bddd', 98, state.last, state.temp_ends, state.long_ends)
  local fresh_from = math.max(series_fresh_from(state.attempts), state.temp_ends, state.long_ends)
  save_series(key, state.text, prefix, {state.attempts}, now, fresh_from)
end

-- A block that has not ended at `from`, with the time it has left, counted from `to`; 0 if it has ended.
local function moved(ends_at, from, to)
  if ends_at > from then
    return to + (ends_at - from)
  end
  return 0
end

-- A state as it counts at `now`: the time to go by, when its blocks end, and whether all history happens now.
local function present_of(limit, state, now)
  if state.last > now + limit.memory then
    -- A block keeps what was left of it.
    return now, moved(state.temp_ends, state.last, now), moved(state.long_ends, state.last, now), true
  end
  local at = math.max(now, state.last)
  return at, moved(state.temp_ends, at, at), moved(state.long_ends, at, at), false
end

-- The attempts in the window of `tier`.
local function attempts_in(state, tier, at, is_back)
  if is_back then
    return state.attempts.closed + state.attempts.open, true
  end
  local used, _, is_series_back = view(state.attempts, at, tier.window)
  return used, is_series_back
end

-- From when on `cost` attempts reach no threshold of `tier`, after `recorded` ones were made now.
local function allowed_at(state, tier, at, is_back, recorded, cost)
  local used, is_series_back = attempts_in(state, tier, at, is_back)
  local excess = used + recorded + cost - (tier.threshold - 1)
  if excess <= 0 then
    return at
  end
  if excess <= used then
    return leaves_at(state.attempts, at, tier.window, used, is_series_back, excess)
  end
  return at + tier.window
end

local function decide(limit, state, now, _, cost)
  local temp, long = limit.temp, limit.long
  local at, temp_ends, long_ends, is_back = present_of(limit, state, now)
  local is_recording = cost > 0 and (temp_ends == 0 and long_ends == 0 or not limit.is_ignoring)
  local recorded = is_recording and cost or 0
  local short_count = math.min(attempts_in(state, temp, at, is_back) + recorded, limit.kept)
  local long_count = math.min(attempts_in(state, long, at, is_back) + recorded, limit.kept)
  if is_recording and short_count >= temp.threshold and (temp_ends == 0 or limit.is_lengthening) then
    temp_ends = math.max(temp_ends, at + temp.block)
  end
  if is_recording and long_count >= long.threshold and (long_ends == 0 or limit.is_lengthening) then
    long_ends = math.max(long_ends, at + long.block)
  end
  -- The block that ends last is in force; of two that end together the long one.
  local block = math.max(temp_ends, long_ends)
  local used, expired, is_series_back
  if is_back then
    used, expired, is_series_back = state.attempts.closed + state.attempts.open, 0, true
  else
    used, expired, is_series_back = view(state.attempts, at, limit.memory)
  end
  local not_before = 0
  if block > 0 then
    not_before = block
    if cost > math.min(temp.threshold, long.threshold) - 1 then
      not_before = -1
    elseif cost > 0 then
      -- What this attempt leaves behind counts against the same attempt made later.
      not_before = math.max(block, allowed_at(state, temp, at, is_back, recorded, cost),
        allowed_at(state, long, at, is_back, recorded, cost))
    end
  end
  local forgotten_at
  if is_recording then
    forgotten_at = at + limit.memory
  else
    forgotten_at = empty_at(state.attempts, at, limit.memory, used, is_series_back)
  end
  return {
    admitted = block == 0, is_recording = is_recording, at = at, block = block, temp_ends = temp_ends,
    long_ends = long_ends, scope = long_ends >= temp_ends and 1 or 0,
    not_before = not_before, resets_at = math.max(block, forgotten_at), short_count = short_count,
    long_count = long_count, used = used, expired = expired, is_back = is_series_back,
  }
end

local function commit(limit, state, _, cost, o)
  if not o.is_recording and not o.is_back then
    return
  end
  local s = state.attempts
  if o.is_recording then
    -- An attempt counts when it is made: a later stamp has no meaning here.
    record(s, o.at, limit.memory, o.used, o.expired, o.is_back, o.at, 0, math.min(cost, limit.kept))
    keep_newest(s, limit.kept)
  else
    settle(s, o.at, o.used, o.expired, o.is_back)
  end
  state.temp_ends, state.long_ends, state.last = o.temp_ends, o.long_ends, o.at
  state.is_changed = true
end

local function fits(limit, state, now, cost)
  local seen = decide(limit, state, now, now, 0)
  if seen.block > 0 then
    return 0
  end
  local short = math.max(0, limit.temp.threshold - 1 - seen.short_count)
  local long = math.max(0, limit.long.threshold - 1 - seen.long_count)
  return math.min(short, long, cost)
end

local function refund(limit, state, now, units, recorded)
  return refund_series(state.attempts, math.max(now, state.last), limit.memory, 0, units, recorded)
end

-- Blocks for `duration` from now, unless a block already lasts longer.
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

local function memory(limit)
  return limit.memory
end

local function facts(_, o)
  return struct.pack('<BBdddddd', o.admitted and 1 or 0, o.scope, o.at, o.block, o.not_before, o.resets_at,
    o.short_count, o.long_count)
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
