-- debt: the twin of debt.rs, for debts and pending tokens. Change both or neither.

-- Returns the part of `owed` that is left after `elapsed`. Where the product is inexact, it is larger than any debt.
local function drained(l, owed, elapsed)
  return math.max(0, owed - elapsed * l.drain)
end

-- Returns a * b / c, rounded up and at most `most`. The result is exact even where the product exceeds 2^53.
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

-- Whether a / b is larger than c / d, computed exactly.
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

-- Returns the units of `tokens`, at most `most`.
local function units_of(l, tokens, most)
  return math.min(tokens * l.unit, most)
end

-- Inserts into a list ordered by time. If the list is full, merges the two closest entries into the later
-- one.
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

-- Returns the first time, from `at` on, at which a debt of `due` at `at` has fallen to `room`. Pending tokens
-- that become due after `at` are added to it. It is never more than `most`.
local function falls_to(l, due, at, room, most, pending)
  local left, to_come = {}, 0
  for i = #pending, 1, -1 do
    if pending[i].stamp > at then
      to_come = to_come + units_of(l, pending[i].tokens, most)
    end
    left[i] = to_come
  end
  local from = at
  for i = 1, #pending do
    local stamp = pending[i].stamp
    if stamp > at then
      if left[i] <= room then
        local moment = from + ceil(math.max(0, due - (room - left[i])) / l.drain)
        if moment <= stamp then
          return moment
        end
      end
      due = math.min(drained(l, due, stamp - from) + units_of(l, pending[i].tokens, most), most)
      from = stamp
    end
  end
  return from + ceil(math.max(0, due - room) / l.drain)
end

-- Removes up to `tokens` that become due at or after `stamp`. Returns the number removed. Later entries are
-- included, because tokens may have been merged into them.
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

return {
  drained = drained, scaled = scaled, is_more = is_more, units_of = units_of, insert_pending = insert_pending,
  falls_to = falls_to, remove_pending = remove_pending,
}
