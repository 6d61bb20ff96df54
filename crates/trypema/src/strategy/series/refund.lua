-- Refunds to a series: the twin of series/refund.rs and of `subtract` in series/ring.rs. Change both or
-- neither.

-- Returns the closed buckets from `from` up to, but not including, `to`, with `units` added to each
-- cumulative count.
local function counted_up(s, from, to, units)
  local buckets = {}
  for index = from, to - 1 do
    local counted = s.through - units_after(s, index) + units
    buckets[#buckets + 1] = bucket(s, stamp_of(s, index), counted)
  end
  return table.concat(buckets)
end

-- Removes up to `units` from closed bucket `index`. Returns the number removed. Counts are cumulative and
-- only their differences matter: so either the counts before `index` rise, or those from `index` on fall,
-- whichever are fewer.
local function refund_closed(s, index, units)
  gather(s)
  local before = index > 0 and units_after(s, index - 1) or s.closed
  local refunded = math.min(units, before - units_after(s, index))
  local at = index * (s.width + 6)
  if index < s.pushed / 2 then
    replace(s, counted_up(s, 0, index, refunded) .. s.tail:sub(at + 1))
  else
    replace(s, s.tail:sub(1, at) .. counted_up(s, index, s.pushed, -refunded))
    s.through = (s.through - refunded) % wrap_of(s)
  end
  s.closed = s.closed - refunded
  return refunded
end

-- Removes up to `units` from the bucket that counted them at `moment`. Returns the number removed.
local function refund_at(s, moment, group, units)
  if moment >= s.first then
    local refunded = moment > s.newest and 0 or math.min(units, s.open)
    s.open = s.open - refunded
    return refunded
  end
  local index = partition(s, stamp_of, moment - 1)
  -- A bucket spans less than a group. A bucket that ends a group or more after `moment` holds other calls.
  if index == s.stored + s.pushed or stamp_of(s, index) - moment >= math.max(group, 1) then
    return 0
  end
  return refund_closed(s, index, units)
end

-- Removes up to `units`, the oldest first. Returns the number removed.
local function refund_oldest(s, units)
  local from_closed = math.min(units, s.closed)
  if from_closed > 0 then
    gather(s)
    -- The emptied buckets keep their times. Their counts are changed so that no units are left in them.
    local emptied = partition(s, units_through, from_closed)
    local left = s.closed - from_closed
    local buckets = {}
    for index = 0, emptied - 1 do
      buckets[index + 1] = bucket(s, stamp_of(s, index), s.through - left)
    end
    replace(s, table.concat(buckets) .. s.tail:sub(emptied * (s.width + 6) + 1))
    s.closed = left
  end
  local from_open = math.min(units - from_closed, s.open)
  s.open = s.open - from_open
  return from_closed + from_open
end

return {refund_at = refund_at, refund_oldest = refund_oldest}
