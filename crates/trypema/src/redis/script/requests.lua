-- Answers the requests, as long as they are in their usual case.
local reply, answered = {pack('<d', now)}, 0
-- The states that driver.lua read, by key. They may be changed and not yet written, so the quick cases leave them
-- alone.
local states = {}
-- The usual cases of takes and leases that were needed so far (quick/*.lua), by strategy number.
local quicks = {}
-- The functions of quick/reservations.lua, and the request of quick/lease.lua, once there was one.
local reservations, lease

local function quick_of(number)
  quicks[number] = quicks[number] or define('quick', number)
  return quicks[number]
end

-- Answers a reservation or its settlement in the usual case. Returns whether it did.
local function answer_reservation(verb, number, index, cost, ttl, from)
  -- A strategy that holds units keeps them in the table itself.
  local decide = define('quick_hold', number)
  local take = not decide and verb == RESERVE and quick_of(number)
  local key, table_key = KEYS[index], KEYS[decide and index or index + 1]
  if states[key] or states[table_key] or verb == RESERVE and not decide and not take then
    return false
  end
  reservations = reservations or define('quick/reservations')
  local is_read, text, after
  if verb == RESERVE then
    is_read, text, after = pcall(reservations.hold, key, table_key, cost, ttl, from, take, decide)
  else
    is_read, text, after = pcall(reservations.settle, number, key, table_key, cost, from, decide)
  end
  if not is_read or text == UNUSUAL then
    return false
  end
  at, reply[#reply + 1] = after, text
  return true
end

-- Answers a request that is one take, lease, reservation or settlement, in its usual case. Returns whether it did; if
-- not, `at` stays.
local function answer_quickly()
  local count, number, verb, index, times, cost, extra, limit_at = unpack('<BBBI2I4dd', argument, at)
  if count > 1 or times > 1 then
    return false
  end
  if verb == RESERVE or verb == SETTLE then
    return answer_reservation(verb, number, index, cost, extra, limit_at)
  end
  local key, asked = KEYS[index], nil
  local quick = (verb == TAKE or verb == LEASE) and not states[key] and quick_of(number)
  if not quick then
    return false
  end
  if verb == LEASE then
    lease = lease or define('quick/lease')(now)
    asked = lease
    lease.index, lease.need, lease.length = index, cost, extra
  end
  local is_read, outcome, after, units, _, window_end, number_of_count =
    pcall(quick, key, argument, limit_at, now, cost, asked)
  if not is_read or outcome == UNUSUAL then
    return false
  end
  at, is_written = after, true
  if asked then
    reply[#reply + 1] = pack('<BdI4I4dI4I4', 1, units, lease.instances, 0, window_end or 0, number_of_count or 0, 1)
      .. outcome
  else
    reply[#reply + 1] = pack('<BdI4', 1, 0, 1) .. outcome
  end
  return true
end

-- In most calls every request is in its usual case, and the functions below are not defined.
while answered < requests and answer_quickly() do
  answered = answered + 1
end
if is_in_doubt then
  return 'some of this may have been spent'
end
if answered == requests then
  return table.concat(reply)
end
