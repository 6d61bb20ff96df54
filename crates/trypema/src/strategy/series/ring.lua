-- ring: the closed buckets of a series, the twin of series/ring.rs. Change both or neither.
--
-- A state made of series is one string: the prefix of its strategy, the head of each series, then the closed
-- buckets of each, oldest first.
--   head    <I7 first> <I4 open_span> <I7 open> <I6 horizon, + 2^47 if there are closed buckets>
--           and then <I7 closed> <I7 oldest> <I7 through> <I3 start> <I3 stored> <I3 room> <B width>
--   bucket  <I6 newest call> <I6, or I7 if width is 7: units counted up to and including it>, both wrapping
-- A short string is read and written as a whole. A long one has a ring of `room` slots for each series, of
-- which `stored` from `start` on are used. It is changed in place, so a take costs the same however long the
-- string is.

-- The room above which a ring is rewritten when three quarters of it are unused.
local SHRINK_ABOVE = 128

-- `tail` holds the buckets that were closed since the string was read, `pushed` of them. The 16 fields fill
-- the table's hash part exactly: one more field would double it.
local function new()
  return {
    first = 0, newest = 0, open = 0, horizon = 0, closed = 0, oldest = 0, through = 0, start = 0, stored = 0,
    room = 0, width = 6, base = 0, tail = '', pushed = 0, key = '', text = '',
  }
end

-- Reads the head at `at` of `text`, the beginning of the string at `key`. Returns the series and the position after
-- its head.
local function read_head(key, text, at)
  local s = new()
  local open_span
  s.first, open_span, s.open, s.horizon, at = unpack('<I7I4I7I6', text, at)
  s.newest = s.first + open_span
  s.key, s.text = key, text
  if s.horizon >= HAS_CLOSED then
    s.horizon = s.horizon - HAS_CLOSED
    s.closed, s.oldest, s.through, s.start, s.stored, s.room, s.width, at = unpack('<I7I7I7I3I3I3B', text, at)
  end
  return s, at
end

-- Reads `count` series behind the prefix of a state, which series/save.lua or quick/series.lua wrote.
local function read(key, text, at, count)
  local list = {}
  for i = 1, count do
    list[i], at = read_head(key, text, at)
  end
  for i = 1, count do
    list[i].base = at - 1
    at = at + list[i].room * (list[i].width + 6)
  end
  return list
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
  return call('GETRANGE', s.key, at, at + size - 1), 1
end

-- Returns the time of the newest call in closed bucket `index`.
local function stamp_of(s, index)
  local text, at = slot(s, index)
  return s.newest - (s.newest - unpack('<I6', text, at)) % TIME_WRAP
end

local function wrap_of(s)
  return s.width == 6 and 2 ^ 48 or 2 ^ 53
end

-- Returns the units in the closed buckets after `index`.
local function units_after(s, index)
  local text, at = slot(s, index)
  local format = s.width == 6 and '<I6' or '<I7'
  return (s.through - unpack(format, text, at + 6)) % wrap_of(s)
end

-- Returns the units in the closed buckets up to and including `index`.
local function units_through(s, index)
  return s.closed - units_after(s, index)
end

-- Returns a closed bucket as it is stored.
local function bucket(s, stamp, through)
  return pack(s.width == 6 and '<I6I6' or '<I6I7', stamp % TIME_WRAP, through % wrap_of(s))
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

-- Returns the number of closed buckets whose newest call is at `moment` or earlier, and the units in the others.
local function expired_at(s, moment)
  local expired = partition(s, stamp_of, moment)
  return expired, expired > 0 and units_after(s, expired - 1) or s.closed
end

local function slots(s, from, to)
  local size = s.width + 6
  local at, length = s.base + from * size, (to - from) * size
  if at + length <= #s.text then
    return s.text:sub(at + 1, at + length)
  end
  return call('GETRANGE', s.key, at, at + length - 1)
end

-- Replaces the closed buckets by `text`. The whole string of the state is then rewritten.
local function replace(s, text)
  s.tail, s.pushed = text, #text / (s.width + 6)
  s.start, s.stored, s.room = 0, 0, 0
end

-- Moves all closed buckets to `tail`, oldest first. The whole string of the state is then rewritten.
local function gather(s)
  local stop = s.start + s.stored
  local stored = ''
  if s.stored > 0 and stop <= s.room then
    stored = slots(s, s.start, stop)
  elseif s.stored > 0 then
    stored = slots(s, s.start, s.room) .. slots(s, 0, stop - s.room)
  end
  replace(s, stored .. s.tail)
end

-- Forgets the `count` oldest closed buckets. `left` is the number of units in the others.
local function drop_oldest(s, count, left)
  local length = s.stored + s.pushed - count
  s.closed = left
  if length <= 0 then
    replace(s, '')
    s.oldest = 0
    return
  end
  if count <= s.stored and s.stored > 0 then
    s.start = (s.start + count) % s.room
    s.stored = s.stored - count
  else
    gather(s)
    replace(s, s.tail:sub(count * (s.width + 6) + 1))
  end
  if s.room > SHRINK_ABOVE and length * 4 < s.room then
    gather(s)
  end
  s.oldest = stamp_of(s, 0)
end

local function forget(s)
  replace(s, '')
  s.first, s.newest, s.open, s.closed, s.oldest, s.horizon, s.through, s.width = 0, 0, 0, 0, 0, 0, 0, 6
end

-- Gives the count of every closed bucket seven bytes instead of six.
local function widen(s)
  gather(s)
  local buckets = {}
  for index = 0, s.pushed - 1 do
    buckets[index + 1] = pack('<I6I7', stamp_of(s, index) % TIME_WRAP, units_through(s, index))
  end
  s.width, s.through = 7, s.closed
  replace(s, table.concat(buckets))
end

-- Closes the open bucket.
local function close(s)
  if s.width == 6 and s.closed + s.open >= 2 ^ 48 then
    widen(s)
  end
  if s.stored + s.pushed == 0 then
    s.oldest = s.newest
  end
  -- The sum of `through` and `open` may exceed 2^53, but the difference does not.
  s.through = (s.through - (wrap_of(s) - s.open)) % wrap_of(s)
  s.tail = s.tail .. bucket(s, s.newest, s.through)
  s.pushed = s.pushed + 1
  s.closed = s.closed + s.open
end
