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

local quick_of = {}
quick_of[1] = function()
-- What series.lua does in the usual case, in one go: a short string, nothing wrong with the clock or the window, and a
-- cost that fits. `at` is where the head is in `text`. Returns what was used, and what comes after the
-- strategy's prefix; nothing where series.lua has to look.
local function advance(text, at, now, window, group, capacity, cost)
  local first, newest, open, closed, oldest, through, stored = 0, 0, 0, 0, 0, 0, 0
  local buckets = at
  -- A string that is not whole, or will not be with one bucket more.
  if #text + 67 > 1024 then
    return
  end
  if #text > 0 then
    local stretch, horizon
    first, stretch, open, horizon, at = unpack('<I7I4I7I6', text, at)
    newest = first + stretch
    if horizon >= 2 ^ 47 then
      local start, room, width
      horizon = horizon - 2 ^ 47
      closed, oldest, through, start, stored, room, width, at = unpack('<I7I7I7I3I3I3B', text, at)
      if start > 0 or room > stored or width > 6 then
        return
      end
    end
    if horizon ~= window or newest > now then
      return
    end
    buckets = at
  end
  if now >= newest + window then
    open, closed, through, stored, text = 0, 0, 0, 0, ''
  elseif closed > 0 and now >= oldest + window then
    local gone, last
    repeat
      gone, last, at = unpack('<I6I6', text, buckets)
      closed, stored, buckets = (through - last) % 2 ^ 48, stored - 1, at
      if stored > 0 then
        gone = unpack('<I6', text, buckets)
      end
      oldest = newest - (newest - gone) % 2 ^ 48
    until stored == 0 or now < oldest + window
  end
  local used = closed + open
  if cost > capacity - used or cost == 0 or used >= 2 ^ 48 then
    return
  end
  local pushed = ''
  if open > 0 and now - first < group then
    open = open + cost
  else
    if open > 0 then
      if stored == 0 then
        oldest = newest
      end
      through = (through + open) % 2 ^ 48
      pushed = pack('<I6I6', newest % 2 ^ 48, through)
      closed, stored = closed + open, stored + 1
    end
    first, open = now, cost
  end
  if stored == 0 then
    return used, pack('<I7I4I7I6', first, now - first, open, window)
  end
  return used, pack('<I7I4I7I6I7I7I7I3I3I3B', first, now - first, open, window + 2 ^ 47, closed, oldest,
    through, 0, stored, stored, 6) .. text:sub(buckets) .. pushed
end

-- absolute.lua in the usual case. Returns the outcome and what comes after the limit in `argument`; nothing, and
-- nothing is written, where absolute.lua has to look.
local function quick(key, argument, at, now, cost)
  local capacity, window, group, sticky, after = unpack('<dddB', argument, at)
  local text = call('GETRANGE', key, '0', '1023')
  if #text > 0 then
    if #text < 32 then
      return
    end
    local tag, stored_capacity = unpack('<BI7', text)
    -- Whether something still counts decides which capacity holds.
    if tag ~= 65 or sticky == 1 and stored_capacity ~= capacity then
      return
    end
  end
  local used, series = advance(text, 9, now, window, group, capacity, cost)
  if not used then
    return
  end
  call('SET', key, pack('<BI7', 65, capacity) .. series, 'PX', ceil(window / 1000) + extra_ms)
  return pack('<Bdddddd', 1, capacity, used, now, 0, now, now + window), after
end

return quick
end
quick_of[2] = function()
-- What series.lua does in the usual case, in one go: a short string, nothing wrong with the clock or the window, and a
-- cost that fits. `at` is where the head is in `text`. Returns what was used, and what comes after the
-- strategy's prefix; nothing where series.lua has to look.
local function advance(text, at, now, window, group, capacity, cost)
  local first, newest, open, closed, oldest, through, stored = 0, 0, 0, 0, 0, 0, 0
  local buckets = at
  -- A string that is not whole, or will not be with one bucket more.
  if #text + 67 > 1024 then
    return
  end
  if #text > 0 then
    local stretch, horizon
    first, stretch, open, horizon, at = unpack('<I7I4I7I6', text, at)
    newest = first + stretch
    if horizon >= 2 ^ 47 then
      local start, room, width
      horizon = horizon - 2 ^ 47
      closed, oldest, through, start, stored, room, width, at = unpack('<I7I7I7I3I3I3B', text, at)
      if start > 0 or room > stored or width > 6 then
        return
      end
    end
    if horizon ~= window or newest > now then
      return
    end
    buckets = at
  end
  if now >= newest + window then
    open, closed, through, stored, text = 0, 0, 0, 0, ''
  elseif closed > 0 and now >= oldest + window then
    local gone, last
    repeat
      gone, last, at = unpack('<I6I6', text, buckets)
      closed, stored, buckets = (through - last) % 2 ^ 48, stored - 1, at
      if stored > 0 then
        gone = unpack('<I6', text, buckets)
      end
      oldest = newest - (newest - gone) % 2 ^ 48
    until stored == 0 or now < oldest + window
  end
  local used = closed + open
  if cost > capacity - used or cost == 0 or used >= 2 ^ 48 then
    return
  end
  local pushed = ''
  if open > 0 and now - first < group then
    open = open + cost
  else
    if open > 0 then
      if stored == 0 then
        oldest = newest
      end
      through = (through + open) % 2 ^ 48
      pushed = pack('<I6I6', newest % 2 ^ 48, through)
      closed, stored = closed + open, stored + 1
    end
    first, open = now, cost
  end
  if stored == 0 then
    return used, pack('<I7I4I7I6', first, now - first, open, window)
  end
  return used, pack('<I7I4I7I6I7I7I7I3I3I3B', first, now - first, open, window + 2 ^ 47, closed, oldest,
    through, 0, stored, stored, 6) .. text:sub(buckets) .. pushed
end

-- suppressed.lua in the usual case: every call was accepted so far, and this one fits under the soft limit. Returns
-- the outcome and what comes after the limit in `argument`; nothing, and nothing is written, where suppressed.lua has
-- to look.
local function quick(key, argument, at, now, cost)
  local soft, window, group, _, sticky, after = unpack('<ddddB', argument, at)
  local text = call('GETRANGE', key, '0', '1023')
  local drawn = 0
  if #text > 0 then
    if #text < 37 then
      return
    end
    local tag, stored_soft, stored_drawn, series = unpack('<BI7I4B', text)
    if tag ~= 83 or series > 1 or sticky == 1 and stored_soft ~= soft then
      return
    end
    drawn = stored_drawn
  end
  local used, series = advance(text, 14, now, window, group, soft, cost)
  if not used then
    return
  end
  if used == 0 then
    drawn = 0
  end
  call('SET', key, pack('<BI7I4B', 83, soft, drawn, 1) .. series, 'PX', ceil(window / 1000) + extra_ms)
  return pack('<Bddddddd', 1, 0, soft, used, now, 0, now, now + window), after
end

return quick
end
quick_of[3] = function()

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

return quick
end
quick_of[4] = function()

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

return quick
end
quick_of[5] = function()

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

return quick
end
-- Any number of requests, decided in their order; each a list of checks that are spent all or none.
-- KEYS     the states, each followed by its helpers: for `reserve` and `reset` the count of resets, for `refund` that and
--          what remembers the receipt, for `lease` that and the instances that share the key
-- ARGV[1]  <d now, -1 = the server's> <I2 requests>, for each <B checks>, for each
--          <B strategy> <B verb> <I2 index of the state in KEYS> <I4 times> <d cost> <d extra>, then the limit, unless the verb has none,
--          and for `lease` <d want> <d units back> <d recorded at> <d seen> <d live for> <I4 resets> <c8 instance>
-- returns  <d now>, then for each check <B 1> <d number> and, for verbs that decide, stretches as `take` adds them,
--          for `lease` after <I4 instances> <I4 resets>;
--          or <B 0> <I2 length> and why its request failed: then nothing of that request was spent
local argument, at = ARGV[1], 1
local given, requests
given, requests, at = unpack('<dI2', argument, at)
local now = time_from(given)
local TAKE = 1

local reply, answered = {pack('<d', now)}, 0
-- What was read of each key, and whether something was written: what fails after that may have been spent.
local states, is_written = {}, false
local quicks = {}

-- Answers a request that is one take, in its usual case; if it is not, `at` stays.
local function take_quickly()
  local count, number, verb, index, times, cost, _, limit_at = unpack('<BBBI2I4dd', argument, at)
  local key = KEYS[index]
  if count > 1 or verb ~= TAKE or times > 1 or states[key] or not quick_of[number] then
    return false
  end
  quicks[number] = quicks[number] or quick_of[number]()
  local is_read, outcome, after = pcall(quicks[number], key, argument, limit_at, now, cost)
  if not is_read or not outcome then
    return false
  end
  at, is_written = after, true
  reply[#reply + 1] = pack('<BdI4', 1, 0, 1) .. outcome
  return true
end

-- In most calls every request is in its usual case, and nothing else need be made.
while answered < requests and take_quickly() do
  answered = answered + 1
end
if answered == requests then
  return table.concat(reply)
end

-- Leases: the twin of strategy/lease.rs. Change both or neither.

-- A lease is shortened, where less was granted than wanted, to this share of its length at most.
local SHORTEST = 0.25

-- The units to grant of `free`.
local function share_of(lease, free)
  if lease.need > free then
    return 0
  end
  local fair = math.max(1, math.floor(free / lease.sharers))
  return math.min(free, math.max(lease.need, math.min(lease.want, fair)))
end

-- When a lease of `units` ends. One that is smaller than wanted is spent sooner, and need not last as long.
local function lease_end(lease, now, units)
  local part = math.max(SHORTEST, math.min(1, units / math.max(1, lease.want)))
  return now + math.floor(lease.length * part)
end

-- Counts the instances that ask for a key: those that did within `live_for`, which this one does from now on, unless
-- that is 0.
local function sharers_of(book, lease, now)
  if lease.live_for == 0 then
    call('ZREM', book, lease.id)
    return math.max(1, call('ZCARD', book))
  end
  call('ZREMRANGEBYSCORE', book, '-inf', string.format('%.0f', now - lease.live_for))
  call('ZADD', book, string.format('%.0f', now), lease.id)
  call('PEXPIRE', book, ceil(lease.live_for / 1000) + extra_ms)
  return call('ZCARD', book)
end

local strategies = {}
-- absolute
strategies[1] = function()
local forgo, lease, block_for, is_blocked
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

-- absolute: the twin of absolute.rs. Change both or neither.
--   limit    <d capacity> <d window> <d group> <B 1 if a live state's own capacity goes first>
--   state    <B 'A'> <I7 capacity> and a series
--   outcome  <B admitted> <d capacity> <d used before> <d not before, -1 = never> <d used after that wait>
--            <d recorded at> <d resets at>

local function read(argument, at)
  local limit = {}
  local sticky
  limit.capacity, limit.window, limit.group, sticky, at = struct.unpack('<dddB', argument, at)
  limit.is_sticky = sticky == 1
  return limit, at
end

local function load(key)
  local text = redis.call('GETRANGE', key, '0', '1023')
  if #text == 0 then
    return {text = text, capacity = 0, series = new_series()}
  end
  check_state(text, 65, 32)
  local _, capacity, at = struct.unpack('<BI7', text)
  local series
  series, at = read_head(key, text, at)
  place({series}, at)
  return {text = text, capacity = capacity, series = series, is_known = true}
end

local function save(key, _, state, now)
  local s = state.series
  local prefix = struct.pack('<BI7', 65, state.capacity)
  save_series(key, state.text, prefix, {s}, now, series_fresh_from(s))
end

local function decide(limit, state, now, stamp, cost)
  local s, window = state.series, limit.window
  local used, expired, is_back = view(s, now, window)
  local capacity = limit.capacity
  if limit.is_sticky and used > 0 then
    capacity = state.capacity
  end
  local admitted = cost <= capacity - used or cost == 0
  stamp = math.min(stamp, now + window)
  local recorded = recorded_at(s, now, used, is_back, stamp)
  local not_before, used_after, resets_at = now, 0, 0
  if admitted and cost > 0 then
    resets_at = recorded + window
  else
    resets_at = empty_at(s, now, window, used, is_back)
  end
  if not admitted then
    not_before, used_after = until_fits(s, now, window, used, is_back, capacity, cost)
  end
  return {
    admitted = admitted, capacity = capacity, used = used, expired = expired, is_back = is_back, stamp = stamp,
    not_before = not_before, used_after = used_after, recorded = recorded, resets_at = resets_at,
  }
end

local function commit(limit, state, now, cost, outcome)
  local s = state.series
  if outcome.admitted and cost > 0 then
    record(s, now, limit.window, outcome.used, outcome.expired, outcome.is_back, outcome.stamp, limit.group, cost)
    state.capacity = outcome.capacity
    state.is_changed = true
  elseif outcome.is_back then
    settle(s, now, outcome.used, outcome.expired, true)
    state.is_changed = true
  end
end

local function fits(limit, state, now, cost)
  local used = view(state.series, now, limit.window)
  local capacity = limit.capacity
  if limit.is_sticky and used > 0 then
    capacity = state.capacity
  end
  return math.min(cost, math.max(0, capacity - used))
end

local function refund(limit, state, now, units, recorded)
  return refund_series(state.series, now, limit.window, limit.group, units, recorded)
end

local function memory(limit)
  return limit.window
end

local function facts(_, o)
  return struct.pack('<Bdddddd', o.admitted and 1 or 0, o.capacity, o.used, o.not_before, o.used_after,
    o.recorded, o.resets_at)
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

return {read = read, load = load, save = save, decide = decide, commit = commit, fits = fits, refund = refund, memory = memory, facts = facts, take = take, forgo = forgo, lease = lease, block_for = block_for, is_blocked = is_blocked}
end
-- suppressed
strategies[2] = function()
local forgo, lease, block_for, is_blocked
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

-- suppressed: the twin of suppressed.rs. Change both or neither.
--   limit    <d soft> <d window> <d group> <d hard limit factor> <B 1 if a live state's own capacity goes first>
--   state    <B 'S'> <I7 soft> <I4 drawn> <B series> and one series, or two if not every call was accepted
--   outcome  <B zone: 0 rejected, 1 allowed, 2 drawn and denied, 3 drawn and admitted> <d factor> <d soft>
--            <d used before> <d not before, -1 = never> <d used after that wait> <d recorded at> <d resets at>

local SECOND = 1000000
local GOLDEN = 0x9E3779B9
local MAX_EXACT = 2 ^ 53 - 1

local function read(argument, at)
  local limit = {}
  local sticky
  limit.capacity, limit.window, limit.group, limit.factor, sticky, at = struct.unpack('<ddddB', argument, at)
  limit.is_sticky = sticky == 1
  return limit, at
end

-- What is never passed when `soft` is the limit to hold.
local function hard_of(limit, soft)
  return math.min(math.floor(soft * limit.factor * (1 + 1e-12)), MAX_EXACT)
end

local function load(key)
  local text = redis.call('GETRANGE', key, '0', '1023')
  if #text == 0 then
    return {text = text, capacity = 0, drawn = 0, accepted = new_series()}
  end
  check_state(text, 83, 37)
  local _, capacity, drawn, series, at = struct.unpack('<BI7I4B', text)
  local state = {text = text, capacity = capacity, drawn = drawn, is_known = true}
  state.accepted, at = read_head(key, text, at)
  if series == 2 then
    state.observed, at = read_head(key, text, at)
  end
  place({state.accepted, state.observed}, at)
  return state
end

local function save(key, _, state, now)
  local list = {state.accepted, state.observed}
  local prefix = struct.pack('<BI7I4B', 83, state.capacity, state.drawn, #list)
  local fresh_from = series_fresh_from(state.accepted)
  if state.observed then
    fresh_from = math.max(fresh_from, series_fresh_from(state.observed))
  end
  save_series(key, state.text, prefix, list, now, fresh_from)
end

-- A copy of a series, to go its own way; its string is then written anew.
local function copy_of(s)
  relocate(s, linear(s))
  local copy = {}
  for name, value in pairs(s) do
    copy[name] = value
  end
  return copy
end

-- The share of calls to admit once `cost` more are observed.
local function share_observed(limit, state, now, soft, cost)
  local observed = state.observed or state.accepted
  local used, _, is_back = view(observed, now, limit.window)
  local last_second = used
  if not is_back then
    last_second = units_within(observed, now, SECOND)
  end
  local windows_worth = (last_second + cost) * (limit.window / SECOND)
  return math.min(soft / math.max(used + cost, windows_worth), 1)
end

-- The last draw, unless nothing counts any more: then it starts anew.
local function last_drawn(limit, state, now, used)
  if used == 0 and (not state.observed or view(state.observed, now, limit.window) == 0) then
    return 0
  end
  return state.drawn
end

-- The soft limit that holds: the stored one if this limit is sticky and the state still counts something.
local function soft_of(limit, state, now, used)
  if limit.is_sticky then
    if used > 0 or state.observed and view(state.observed, now, limit.window) > 0 then
      return state.capacity
    end
  end
  return limit.capacity
end

-- The wait until the cost fits under the soft limit. A cost above that can only be drawn, as long as it fits
-- under the hard one: then it is the wait until it can be, or, at the least, for another group.
local function until_admitted(limit, state, now, used, is_back, soft, cost)
  local s, hard = state.accepted, hard_of(limit, soft)
  if cost <= soft or cost > hard then
    return until_fits(s, now, limit.window, used, is_back, soft, cost)
  end
  local again = now + limit.group
  if cost <= hard - used then
    return again, used
  end
  local not_before, used_after = until_fits(s, now, limit.window, used, is_back, hard, cost)
  return math.max(not_before, again), used_after
end

local function decide(limit, state, now, stamp, cost)
  local s, window = state.accepted, limit.window
  local used, expired, is_back = view(s, now, window)
  local soft = soft_of(limit, state, now, used)
  stamp = math.min(stamp, now + window)
  local o = {
    zone = 1, factor = 0, soft = soft, used = used, expired = expired, is_back = is_back, stamp = stamp,
    not_before = now, used_after = 0, recorded = recorded_at(s, now, used, is_back, stamp),
  }
  if cost > soft - used and cost > 0 then
    o.zone = 0
    if cost <= hard_of(limit, soft) - used then
      local share = share_observed(limit, state, now, soft, cost)
      o.factor = 1 - share
      o.drawn = (last_drawn(limit, state, now, used) + GOLDEN) % 2 ^ 32
      o.zone = o.drawn < math.floor(share * 2 ^ 32) and 3 or 2
    end
  end
  o.admitted = o.zone % 2 == 1
  if o.admitted and cost > 0 then
    o.resets_at = o.recorded + window
  else
    o.resets_at = empty_at(s, now, window, used, is_back)
  end
  if not o.admitted then
    o.not_before, o.used_after = until_admitted(limit, state, now, used, is_back, soft, cost)
  end
  return o
end

-- Moves what was observed to now, if the clock went back by more than a window.
local function repair_observed(limit, state, now)
  if state.observed then
    local used, expired, is_back = view(state.observed, now, limit.window)
    if is_back then
      settle(state.observed, now, used, expired, true)
      state.is_changed = true
    end
  end
end

local function commit(limit, state, now, cost, o)
  local s, window = state.accepted, limit.window
  if cost == 0 then
    if o.is_back then
      settle(s, now, o.used, o.expired, true)
      state.is_changed = true
    end
    return repair_observed(limit, state, now)
  end
  state.is_changed = true
  state.capacity = o.soft
  state.drawn = o.drawn or last_drawn(limit, state, now, o.used)
  if not o.admitted and not state.observed then
    state.observed = copy_of(s)
  end
  if o.admitted then
    record(s, now, window, o.used, o.expired, o.is_back, o.stamp, limit.group, cost)
  elseif o.is_back then
    settle(s, now, o.used, o.expired, true)
  end
  local observed = state.observed
  if observed then
    local used, expired, is_back = view(observed, now, window)
    local units = math.min(cost, MAX_EXACT - used)
    record(observed, now, window, used, expired, is_back, o.stamp, limit.group, units)
  end
end

-- Observes a call that another check of its request denied.
local function forgo(limit, state, now, cost, o)
  if cost > 0 then
    o.admitted = false
    commit(limit, state, now, cost, o)
  end
end

local function fits(limit, state, now, cost)
  local used = view(state.accepted, now, limit.window)
  return math.min(cost, math.max(0, soft_of(limit, state, now, used) - used))
end

local function refund(limit, state, now, units, recorded)
  if not state.observed then
    -- The call was seen all the same: from here on the two series differ.
    state.observed = copy_of(state.accepted)
  end
  repair_observed(limit, state, now)
  return refund_series(state.accepted, now, limit.window, limit.group, units, recorded)
end

local function memory(limit)
  return limit.window
end

local function facts(_, o)
  return struct.pack('<Bddddddd', o.zone, o.factor, o.soft, o.used, o.not_before, o.used_after, o.recorded,
    o.resets_at)
end

-- suppressed, leased: the twin of suppressed/lease.rs. Change both or neither.

-- Takes back what was not spent, and observes what was seen. A lease is not a call: from the first one on the two series
-- differ.
local function settle_lease(limit, state, now, lease)
  if not state.observed then
    state.observed = copy_of(state.accepted)
  end
  repair_observed(limit, state, now)
  if lease.back > 0 then
    refund_series(state.accepted, now, limit.window, limit.group, lease.back, lease.recorded)
  end
  if lease.seen > 0 then
    local used, expired, is_back = view(state.observed, now, limit.window)
    local units = math.min(lease.seen, MAX_EXACT - used)
    record(state.observed, now, limit.window, used, expired, is_back, now, limit.group, units)
  end
end

-- Records a lease as accepted, and what that makes of its outcome.
local function record_lease(limit, state, now, units, stamp, o)
  local s, window = state.accepted, limit.window
  if units == 0 then
    if o.is_back then
      settle(s, now, o.used, o.expired, true)
    end
    return
  end
  state.capacity = o.soft
  stamp = math.min(stamp, now + window)
  o.recorded = recorded_at(s, now, o.used, o.is_back, stamp)
  o.resets_at = o.recorded + window
  record(s, now, window, o.used, o.expired, o.is_back, stamp, limit.group, units)
end

local function lease(limit, state, now, lease)
  settle_lease(limit, state, now, lease)
  state.is_changed = true
  local cost = math.max(1, lease.need)
  local o = decide(limit, state, now, now, cost)
  local room = math.max(0, hard_of(limit, o.soft) - o.used)
  local free = math.max(0, o.soft - o.used)
  local units = share_of(lease, free)
  if units > 0 then
    o.zone = 1
  elseif cost > free and cost <= room then
    -- What the instance has seen is observed already.
    local share = share_observed(limit, state, now, o.soft, 0)
    state.drawn = (last_drawn(limit, state, now, o.used) + GOLDEN) % 2 ^ 32
    units = math.floor(lease.want * share + state.drawn / 2 ^ 32)
    units = math.min(units, math.max(1, math.floor(room / lease.sharers)))
    o.factor, o.zone = 1 - share, units > 0 and 3 or 2
  end
  record_lease(limit, state, now, units, lease_end(lease, now, units), o)
  return units, o
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

return {read = read, load = load, save = save, decide = decide, commit = commit, fits = fits, refund = refund, memory = memory, facts = facts, take = take, forgo = forgo, lease = lease, block_for = block_for, is_blocked = is_blocked}
end
-- token_bucket
strategies[3] = function()
local forgo, lease, block_for, is_blocked
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

return {read = read, load = load, save = save, decide = decide, commit = commit, fits = fits, refund = refund, memory = memory, facts = facts, take = take, forgo = forgo, lease = lease, block_for = block_for, is_blocked = is_blocked}
end
-- sliding_window
strategies[4] = function()
local forgo, lease, block_for, is_blocked

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

return {read = read, load = load, save = save, decide = decide, commit = commit, fits = fits, refund = refund, memory = memory, facts = facts, take = take, forgo = forgo, lease = lease, block_for = block_for, is_blocked = is_blocked}
end
-- fixed_window
strategies[5] = function()
local forgo, lease, block_for, is_blocked

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

return {read = read, load = load, save = save, decide = decide, commit = commit, fits = fits, refund = refund, memory = memory, facts = facts, take = take, forgo = forgo, lease = lease, block_for = block_for, is_blocked = is_blocked}
end
-- abuse
strategies[6] = function()
local forgo, lease, block_for, is_blocked
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

-- abuse: the twin of abuse/lease.rs. Change both or neither.

-- Nothing is leased. What an instance has denied out of memory is counted, if there still is the block it went by.
local function lease(limit, state, now, lease)
  local outcome = decide(limit, state, now, now, 0)
  if outcome.block > 0 and lease.seen > 0 then
    outcome = decide(limit, state, now, now, lease.seen)
    commit(limit, state, now, lease.seen, outcome)
  end
  return 0, outcome
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

return {read = read, load = load, save = save, decide = decide, commit = commit, fits = fits, refund = refund, memory = memory, facts = facts, take = take, forgo = forgo, lease = lease, block_for = block_for, is_blocked = is_blocked}
end
-- The rest of the driver, for requests that are not in their usual case.
local PEEK, UP_TO, RESERVE, REFUND, REFUND_UNITS, RESET, ADOPT, BLOCK, UNBLOCK, FORGO, LEASE = 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12

-- Longer than any receipt is good for: two of the longest windows.
local LONGEST_MS = 2 * 366 * 86400000

local loaded, order = {}, {}

local function strategy_of(number)
  if not loaded[number] then
    loaded[number] = strategies[number]()
  end
  return loaded[number]
end

-- The state of a check: read once, and written once, when all is decided, however many checks are on it.
local function state_at(check)
  local key = KEYS[check.index]
  local entry = states[key]
  if not entry then
    entry = {strategy = check.strategy, state = check.strategy.load(key), key = key}
    states[key] = entry
    order[#order + 1] = entry
  end
  return entry
end

local function save_entry(entry)
  if entry.state.is_changed then
    entry.strategy.save(entry.key, entry.limit, entry.state, now)
    entry.state.is_changed, is_written = false, true
  end
end

-- Runs `change` on the state of a check. It is written by the limit that changed it last, whoever looks at it after.
local function changing(check, change, ...)
  local entry = check.entry
  local was_changed = entry.state.is_changed
  entry.state.is_changed = false
  local result = change(check, entry.state, ...)
  if entry.state.is_changed then
    entry.limit, entry.state.is_known = check.limit or entry.limit, true
  end
  entry.state.is_changed = entry.state.is_changed or was_changed
  return result
end

-- How often the key was reset, as long as receipts from before may be around.
local function resets_of(index)
  local resets = tonumber(redis.call('GET', KEYS[index + 1]) or 0)
  return resets or error('the count of resets is no number')
end

local function outlive(key, ttl)
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Keeps the count of resets as long as a receipt of this take is good; returns it.
local function keep_resets(check)
  if check.resets > 0 then
    -- A receipt counts for one memory after it was recorded, which is up to one memory, or the lease, from now.
    local memory = check.strategy.memory(check.limit)
    outlive(KEYS[check.index + 1], time_to_live(now + math.min(check.extra, memory) + 2 * memory, now))
  end
  return check.resets
end

local function reset(check)
  local key, counter, entry = KEYS[check.index], KEYS[check.index + 1], check.entry
  save_entry(entry)
  local ttl = redis.call('PTTL', key)
  if redis.call('DEL', key) == 0 then
    return 0
  end
  is_written = true
  redis.call('INCR', counter)
  outlive(counter, ttl < 0 and LONGEST_MS or math.max(1, ttl))
  entry.state = entry.strategy.load(key)
  return 1
end

local function refund(check, state)
  local s = check.strategy
  local counts_until = check.extra + s.memory(check.limit)
  if check.resets ~= check.times or counts_until <= now then
    return 0
  end
  local ttl = time_to_live(counts_until, now)
  if not redis.call('SET', KEYS[check.index + 2], '', 'NX', 'PX', ttl) then
    return 0
  end
  is_written = true
  if not state.is_known then
    return 0
  end
  state.is_changed = true
  return s.refund(check.limit, state, now, check.cost, check.extra)
end

-- Decides one call and, unless `spend` is false, records it; returns its stretch.
local function decided(check, state, cost, stamp, is_spending)
  local s = check.strategy
  local outcome = s.decide(check.limit, state, now, stamp, cost)
  if is_spending then
    s.commit(check.limit, state, now, cost, outcome)
  end
  return struct.pack('<I4', 1) .. s.facts(check.limit, outcome), outcome
end

-- Grants a lease: takes back what is left of an old one, and records the new one at its end.
local function leased(check, state)
  local s, limit, lease = check.strategy, check.limit, check.lease
  if lease.back > 0 then
    state.is_changed = true
    s.refund(limit, state, now, lease.back, lease.recorded)
  end
  local units = share_of(lease, s.fits(limit, state, now, 2 ^ 53))
  if units == 0 then
    return 0, s.decide(limit, state, now, now, math.max(1, lease.need))
  end
  local outcome = s.decide(limit, state, now, lease_end(lease, now, units), units)
  s.commit(limit, state, now, units, outcome)
  return units, outcome
end

local WITH_RESETS = {[LEASE] = true, [RESERVE] = true, [REFUND] = true, [RESET] = true, [UNBLOCK] = true}

local verbs = {}
verbs[TAKE] = function(check, state, reply)
  check.strategy.take(check.limit, state, now, check.cost, check.times, reply)
  return 0
end
verbs[PEEK] = function(check, state, reply)
  reply[#reply + 1] = decided(check, state, check.cost, now, false)
  return 0
end
verbs[UP_TO] = function(check, state, reply)
  local units = check.strategy.fits(check.limit, state, now, check.cost)
  -- Where nothing fits, the answer says why a single unit does not; it is not recorded.
  local cost = units == 0 and math.min(check.cost, 1) or units
  reply[#reply + 1] = decided(check, state, cost, now, units > 0)
  return units
end
verbs[RESERVE] = function(check, state, reply)
  local stretch, outcome = decided(check, state, check.cost, now + check.extra, true)
  reply[#reply + 1] = stretch
  return outcome.admitted and keep_resets(check) or 0
end
verbs[LEASE] = function(check, state, reply)
  local s, lease = check.strategy, check.lease
  -- What has left, or was forgotten, is nobody's to take away.
  local is_counting = lease.recorded + s.memory(check.limit) > now
  if check.resets ~= lease.resets or not state.is_known or not is_counting then
    lease.back = 0
  end
  local units, outcome
  if s.lease then
    units, outcome = s.lease(check.limit, state, now, lease)
  else
    units, outcome = leased(check, state)
  end
  reply[#reply + 1] = struct.pack('<I4I4I4', lease.sharers, units > 0 and keep_resets(check) or check.resets, 1)
    .. s.facts(check.limit, outcome)
  return units
end
verbs[FORGO] = function(check, state, reply)
  local s = check.strategy
  local outcome = s.decide(check.limit, state, now, now, check.cost)
  local record = s.forgo
  if not outcome.admitted then
    record = s.commit
  end
  reply[#reply + 1] = struct.pack('<I4', 1) .. s.facts(check.limit, outcome)
  if record then
    record(check.limit, state, now, check.cost, outcome)
  end
  return 0
end
verbs[REFUND] = function(check, state)
  return refund(check, state)
end
verbs[REFUND_UNITS] = function(check, state)
  if not state.is_known then
    return 0
  end
  state.is_changed = true
  return check.strategy.refund(check.limit, state, now, check.cost, -1)
end
verbs[RESET] = function(check)
  return reset(check)
end
verbs[ADOPT] = function(check, state)
  if not state.is_known then
    return 0
  end
  state.capacity, state.is_changed = check.limit.capacity, true
  return 1
end
verbs[BLOCK] = function(check, state)
  check.strategy.block_for(state, now, check.extra, check.cost)
  return 1
end
verbs[UNBLOCK] = function(check, state)
  local was_blocked = check.strategy.is_blocked(state, now)
  reset(check)
  return was_blocked and 1 or 0
end

local function read_check()
  local check, number = {}, 0
  number, check.verb, check.index, check.times, check.cost, check.extra, at =
    struct.unpack('<BBI2I4dd', argument, at)
  check.strategy = strategy_of(number)
  if check.verb ~= RESET and check.verb ~= BLOCK and check.verb ~= UNBLOCK then
    check.limit, at = check.strategy.read(argument, at)
  end
  if check.verb == LEASE then
    local l = {need = check.cost, length = check.extra}
    l.want, l.back, l.recorded, l.seen, l.live_for, l.resets, l.id, at =
      struct.unpack('<dddddI4c8', argument, at)
    check.lease = l
  end
  return check
end

-- Spends all checks of a request or none. One that is denied records what its strategy counts of denials.
local function all_or_nothing(checks, reply)
  local outcomes, is_admitted = {}, true
  for i, check in ipairs(checks) do
    outcomes[i] = check.strategy.decide(check.limit, check.entry.state, now, now, check.cost)
    is_admitted = is_admitted and outcomes[i].admitted
  end
  for i, check in ipairs(checks) do
    local s, outcome = check.strategy, outcomes[i]
    local resets = is_admitted and check.verb == RESERVE and keep_resets(check) or 0
    reply[#reply + 1] = struct.pack('<BdI4', 1, resets, 1) .. s.facts(check.limit, outcome)
    local record = s.forgo
    if is_admitted or not outcome.admitted then
      record = s.commit
    end
    if record then
      changing(check, function(_, state)
        record(check.limit, state, now, check.cost, outcome)
      end)
    end
  end
end

local function failed(checks, why, reply)
  local text = tostring(type(why) == 'table' and why.err or why):sub(1, 500)
  for _ = 1, #checks do
    reply[#reply + 1] = struct.pack('<BI2', 0, #text) .. text
  end
end

-- Reads all that a request needs. A key that holds something else fails its own request, and no other.
local function load_all(checks)
  for _, check in ipairs(checks) do
    check.entry = state_at(check)
    if WITH_RESETS[check.verb] then
      check.resets = resets_of(check.index)
    end
    if check.lease then
      is_written = true
      check.lease.sharers = sharers_of(KEYS[check.index + 2], check.lease, now)
    end
  end
end

local function answer(count)
  local checks = {}
  for i = 1, count do
    checks[i] = read_check()
  end
  local is_loaded, why = pcall(load_all, checks)
  if not is_loaded then
    failed(checks, why, reply)
  elseif count == 1 then
    local stretches = {}
    local check = checks[1]
    local number
    if check.verb == RESET or check.verb == UNBLOCK then
      -- These replace the state.
      number = verbs[check.verb](check, check.entry.state)
    else
      number = changing(check, verbs[check.verb], stretches)
    end
    reply[#reply + 1] = struct.pack('<Bd', 1, number) .. table.concat(stretches)
  else
    all_or_nothing(checks, reply)
  end
end

local function answer_all()
  for _ = answered + 1, requests do
    if not take_quickly() then
      local count
      count, at = struct.unpack('<B', argument, at)
      answer(count)
    end
  end
  for _, entry in ipairs(order) do
    save_entry(entry)
  end
end

local is_done, why = pcall(answer_all)
if not is_done and is_written then
  return 'some of this may have been spent'
elseif not is_done then
  error(why, 0)
end
return table.concat(reply)
