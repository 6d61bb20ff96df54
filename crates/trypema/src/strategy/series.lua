-- series: the twin of series.rs and series/ring.rs. Change both or neither.
--
-- A state made of series is one string: the prefix of its strategy, the head of each series, then the closed
-- buckets of each, oldest first.
--   head    <I7 first> <I4 open_span> <I7 open> <I6 horizon, + 2^47 if there are closed buckets>
--           and then <I7 closed> <I7 oldest> <I7 through> <I3 start> <I3 stored> <I3 room> <B width>
--   bucket  <I6 newest call> <I6, or I7 if width is 7: units counted up to and including it>, both wrapping
-- A short string is read and written as a whole. A long one has a ring of `room` slots for each series, of
-- which `stored` from `start` on are used. It is changed in place, so a take costs the same however long the
-- string is.

local TIME_WRAP = 2 ^ 48
local HAS_CLOSED = 2 ^ 47
local MAX_EXACT = 2 ^ 53 - 1
-- The number of bytes that one read fetches, and the longest string that is written as a whole.
local WHOLE = 1024
-- A rewritten ring gets a spare slot for every this many buckets, and at least eight, so that rewriting is
-- rare.
local SPARE = 16
-- The room above which a ring is rewritten when three quarters of it are unused.
local SHRINK_ABOVE = 128

-- `tail` holds the buckets that were closed since the string was read, `pushed` of them. The 16 fields fill
-- the table's hash part exactly: one more field would double it.
local function new_series()
  return {
    first = 0, newest = 0, open = 0, horizon = 0, closed = 0, oldest = 0, through = 0, start = 0, stored = 0,
    room = 0, width = 6, base = 0, tail = '', pushed = 0, key = '', text = '',
  }
end

-- Reads the head at `at` of `text`, the beginning of the string at `key`. Returns the series and the position
-- after its head.
local function read_head(key, text, at)
  local s = new_series()
  local open_span
  s.first, open_span, s.open, s.horizon, at = struct.unpack('<I7I4I7I6', text, at)
  s.newest = s.first + open_span
  s.key, s.text = key, text
  if s.horizon >= HAS_CLOSED then
    s.horizon = s.horizon - HAS_CLOSED
    s.closed, s.oldest, s.through, s.start, s.stored, s.room, s.width, at =
      struct.unpack('<I7I7I7I3I3I3B', text, at)
  end
  return s, at
end

-- Sets the position of each series' buckets. Those of the first series in `list` begin at `at`.
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

-- Returns the string that holds closed bucket `index`, counted from 0, and the position in it.
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

-- Returns the time of the newest call in closed bucket `index`.
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

-- Returns the units in the closed buckets after `index`.
local function units_after(s, index)
  local text, at = slot(s, index)
  local format = s.width == 6 and '<I6' or '<I7'
  return (s.through - struct.unpack(format, text, at + 6)) % wrap_of(s)
end

-- Returns the units in the closed buckets up to and including `index`.
local function units_through(s, index)
  return s.closed - units_after(s, index)
end

-- Returns the length of the prefix of closed buckets, oldest first, in which `probe` is at most `bound`. It
-- is usually short, so the search doubles its steps.
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

-- Returns the part that counts at `now`: the units in the window, the number of closed buckets that have left
-- it, and whether the clock went back by more than a window. A bucket is in the window until its newest call
-- is a window old.
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

-- Returns all closed buckets as one string, oldest first.
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

-- Replaces the closed buckets by `text`. The whole string of the state is then rewritten.
local function relocate(s, text)
  s.tail, s.pushed = text, #text / (s.width + 6)
  s.start, s.stored, s.room = 0, 0, 0
end

-- Forgets the `count` oldest closed buckets. `left` is the number of units in the others.
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

-- Forgets the buckets that have left the window according to a view. If the clock went back by more than a
-- window, moves all history to now.
local function forget_expired(s, now, used, expired, is_stepped_back)
  if is_stepped_back then
    local horizon = s.horizon
    forget(s)
    s.first, s.newest, s.open, s.horizon = now, now, used, horizon
  elseif used == 0 then
    forget(s)
  elseif expired > 0 then
    drop_oldest(s, expired, math.max(0, used - s.open))
  end
end

-- Gives the count of every closed bucket seven bytes instead of six.
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
  -- The sum of `through` and `open` may exceed 2^53, but the difference does not.
  s.through = (s.through - (wrap_of(s) - s.open)) % wrap_of(s)
  local format = s.width == 6 and '<I6I6' or '<I6I7'
  s.tail = s.tail .. struct.pack(format, s.newest % TIME_WRAP, s.through)
  s.pushed = s.pushed + 1
  s.closed = s.closed + s.open
end

-- Returns the part of `units` that can be counted exactly in addition to `used`. Only a cost that overdraws the
-- limit can be larger.
local function countable(units, used)
  return math.min(units, MAX_EXACT - used)
end

-- Counts `units` at `stamp`, after `forget_expired`. Returns the time at which they are counted.
local function record(s, now, window, used, expired, is_stepped_back, stamp, group, units)
  forget_expired(s, now, used, expired, is_stepped_back)
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

-- Returns the time at which units stamped `stamp` would be counted: never before the newest time.
local function recorded_at(s, now, used, is_stepped_back, stamp)
  if is_stepped_back then
    return math.max(stamp, now)
  end
  if used == 0 then
    return stamp
  end
  return math.max(stamp, s.newest)
end

-- Returns the first time at which at least `units` of those used have left the window.
local function leaves_at(s, now, window, used, is_stepped_back, units)
  if is_stepped_back then
    return now + window
  end
  local staying = math.max(0, used - units)
  if s.open > staying or s.stored + s.pushed == 0 then
    return s.newest + window
  end
  return stamp_of(s, partition(s, units_through, s.closed + s.open - staying - 1)) + window
end

-- Returns the time of `leaves_at`, and the units that still count after waiting for it. The second value
-- assumes a wait in whole milliseconds, rounded up.
local function after_wait(s, now, window, used, is_stepped_back, units)
  local at = leaves_at(s, now, window, used, is_stepped_back, units)
  local later = now + math.ceil(math.max(0, at - now) / 1000) * 1000
  if is_stepped_back or s.newest + window <= later then
    return at, 0
  end
  local gone = partition(s, stamp_of, later - window)
  local staying = s.closed
  if gone > 0 then
    staying = units_after(s, gone - 1)
  end
  return at, staying + s.open
end

-- Returns the time at which `cost` fits under `capacity`, -1 = never, and the units that still count after
-- waiting for it. The second value assumes a wait in whole milliseconds, rounded up.
local function until_fits(s, now, window, used, is_stepped_back, capacity, cost)
  if cost > capacity then
    return -1, 0
  end
  return after_wait(s, now, window, used, is_stepped_back, used - capacity + cost)
end

-- Returns the time at which nothing of what is used counts any more, if no further call is made. Returns 0 if
-- nothing counts.
local function empty_at(s, now, window, used, is_stepped_back)
  if used == 0 then
    return 0
  end
  return leaves_at(s, now, window, used, is_stepped_back, used)
end

-- Returns the units in the buckets whose newest call is less than `window` old.
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

-- Returns the time from which on nothing of this series counts.
local function series_fresh_from(s)
  if s.closed + s.open == 0 then
    return 0
  end
  return s.newest + s.horizon
end
