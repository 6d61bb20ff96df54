-- Any number of requests, decided in their order; each a list of checks that are spent all or none.
-- KEYS     the states, each followed by its helpers: for `reserve` and `reset` the count of resets, for `refund` that and
--          what remembers the receipt, for `lease` that and the instances that share the key, for `reset` that and the
--          reservations, for the verbs of reservations these alone, unless the strategy is a table of reservations
-- ARGV[1]  <d now, -1 = the server's> <I2 requests>, for each <B checks>, for each
--          <B strategy> <B verb, + 32 if postpaid, + 64 if a debit> <I2 index of the state in KEYS> <I4 times> <d cost> <d extra>, then the limit, unless the verb has none,
--          and for `heartbeat`, which has no strategy, <c8 instance> (extra is for how long it is live),
--          and for `lease` <d want> <d units back> <d recorded at> <d seen> <d live for> <I4 resets> <c8 instance>,
--          and for `hold`, `settle`, `renew` and `holders` <c16 id> <c8 digest of the request> <B 1 to keep the estimate>
-- returns  <d now>, then for each check <B 1> <d number> and, for verbs that decide, stretches as `take` adds them,
--          for `lease` after <I4 instances> <I4 resets>; `hold`, `settle`, `renew` and `holders` answer <I4 1> and then
--          <d expires at> and the outcome; <d reserved> <d counted> <d refunded> <d would have expired at>;
--          <d would have expired at> <d expires at>; and as many entries of reservations.lua as the number says;
--          or <B 0> <I2 length> and why its request failed: then nothing of that request was spent
local argument, at = ARGV[1], 1
local given, requests
given, requests, at = unpack('<dI2', argument, at)
local now = time_from(given)
local TAKE, LEASE = 1, 12

local reply, answered = {pack('<d', now)}, 0
-- What was read of each key, and whether something was written: what fails after that may have been spent.
local states, is_written = {}, false
local quicks = {}

-- The lease that a usual case is asked for.
local lease = {index = 0, need = 0, length = 0, instances = 0}

-- Reads its terms, which are at `from`; returns what comes after them, nothing where the driver has to look. What counts is forgotten after
-- `retention`.
function lease.read(from, retention)
  local after = read_terms(lease, argument, from)
  -- The driver sees to instances that leave, and to keys that were reset.
  if lease.live_for == 0 or call('GET', KEYS[lease.index + 1]) then
    return
  end
  -- What has left, or was forgotten, is nobody's to take away.
  if lease.resets > 0 or lease.recorded + retention <= now then
    lease.unspent = 0
  end
  return after
end

-- The units to grant of `free`, and where they are recorded. This writes a heartbeat, so the state has been checked.
function lease.grant(free)
  lease.instances = live_instances(KEYS[lease.index + 2], lease.id, lease.live_for, now)
  local units = share_of(lease, free)
  return units, lease_end(lease, now, units)
end

-- Answers a request that is one take or lease, in its usual case; if it is not, `at` stays.
local function answer_quickly()
  local count, number, verb, index, times, cost, extra, limit_at = unpack('<BBBI2I4dd', argument, at)
  local key, asked = KEYS[index], nil
  if count > 1 or verb ~= TAKE and verb ~= LEASE or times > 1 or states[key] or not quick_of[number] then
    return false
  end
  if verb == LEASE then
    asked = lease
    lease.index, lease.need, lease.length = index, cost, extra
  end
  quicks[number] = quicks[number] or quick_of[number]()
  local is_read, outcome, after, units = pcall(quicks[number], key, argument, limit_at, now, cost, asked)
  if not is_read or not outcome then
    return false
  end
  at, is_written = after, true
  if asked then
    reply[#reply + 1] = pack('<BdI4I4I4', 1, units, lease.instances, 0, 1) .. outcome
  else
    reply[#reply + 1] = pack('<BdI4', 1, 0, 1) .. outcome
  end
  return true
end

-- In most calls every request is in its usual case, and nothing else need be made.
while answered < requests and answer_quickly() do
  answered = answered + 1
end
if answered == requests then
  return table.concat(reply)
end
