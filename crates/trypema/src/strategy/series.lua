-- series: the twin of series.rs. Change both or neither. The functions of series/lua are before it.

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
  local expired, left = expired_at(s, now - window)
  return left + s.open, expired, false
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

-- Returns the time at which `cost` fits under `capacity`, -1 = never, and the units that still count after
-- waiting for it. The second value assumes a wait in whole milliseconds, rounded up.
local function until_fits(s, now, window, used, is_stepped_back, capacity, cost)
  if cost > capacity then
    return -1, 0
  end
  local at = leaves_at(s, now, window, used, is_stepped_back, used - capacity + cost)
  local later = now + ceil(math.max(0, at - now) / 1000) * 1000
  if is_stepped_back or s.newest + window <= later then
    return at, 0
  end
  local _, staying = expired_at(s, later - window)
  return at, staying + s.open
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
  local _, left = expired_at(s, now - window)
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

-- Returns an independent copy of a series. Both are then rewritten completely.
local function copy_of(s)
  gather(s)
  local copy = {}
  for name, value in pairs(s) do
    copy[name] = value
  end
  return copy
end

-- Refunds units to a series, after forgetting those that have left the window. `recorded` is -1 for the
-- oldest units.
local function refund(s, now, window, group, units, recorded)
  local used, expired, is_stepped_back = view(s, now, window)
  forget_expired(s, now, used, expired, is_stepped_back)
  local refunds = define_refunds()
  if recorded >= 0 then
    return refunds.refund_at(s, recorded, group, units)
  end
  return refunds.refund_oldest(s, units)
end

-- Returns the beginning of a state whose letter is `tag` and which has `bytes` at least, or an empty string. `save`
-- below, quick/series.lua or quick/refund/absolute.lua wrote it.
local function load(key, tag, bytes)
  local text = call('GETRANGE', key, '0', '1023')
  if #text > 0 then
    require('state')(text, tag, bytes)
  end
  return text
end

-- Writes a state of the series in `list` that was read as `text`, and is needed until `needed_until` at least. Deletes
-- one that nothing needs.
local function save(key, text, prefix, list, now, needed_until)
  for _, s in ipairs(list) do
    needed_until = math.max(needed_until, s.closed + s.open > 0 and s.newest + s.horizon or 0)
  end
  if needed_until > 0 then
    define_save()(key, text, prefix, list, time_to_live(needed_until, now))
  elseif #text > 0 then
    call('DEL', key)
  end
end

-- The 16 fields fill the table's hash part exactly.
return {
  new = new, load = load, read = read, save = save, view = view, forget_expired = forget_expired,
  countable = countable, record = record, recorded_at = recorded_at, leaves_at = leaves_at, until_fits = until_fits,
  empty_at = empty_at, units_within = units_within, keep_newest = keep_newest, copy_of = copy_of, refund = refund,
}
