-- Any number of requests, decided in their order; each a list of checks that are spent all or none.
-- KEYS     the states, each followed by its helpers: for `reserve` and `reset` the count of resets, for `refund` that and
--          what remembers the receipt, for `lease` that and the instances that share the key, for `reset` that and the
--          reservations, for the verbs of reservations these alone, unless the strategy is a table of reservations
-- ARGV[1]  <d now, -1 = the server's> <I2 requests>, for each <B checks>, for each
--          <B strategy> <B verb, + 32 if postpaid, + 64 if a debit> <I2 index of the state in KEYS> <I4 times> <d cost> <d extra>,
--          for `hold`, `settle`, `renew` and `holders` <c16 id> <c8 digest of the request> <c8 attempt> <B how it ends> <I2 bytes of the
--          limit>, then the limit, unless the verb has none,
--          and for `heartbeat`, which has no strategy, <c8 instance> (extra is for how long it is live),
--          for `refund` <d end of the window that counted them, or 0> <I4 count that they joined> <I4 resets at the take>,
--          and for `lease` <d want> <d units back> <d recorded at> <d seen> <d live for> <I4 resets> <c8 instance>, and the same
-- returns  <d now>, then for each check <B 1> <d number> and, for verbs that decide, stretches as `take` adds them,
--          for `lease` after <I4 instances> <I4 resets>, and for it and `reserve` after the count that the units joined,
--          as for `refund`; `hold`, `settle`, `renew` and `holders` answer <I4 1> and then
--          <d expires at> and the outcome; <d reserved> <d counted> <d refunded> <d would have expired at>;
--          <d would have expired at> <d expires at>; and as many entries of reservations.lua as the number says;
--          or <B 0> <I2 length> and why its request failed: then nothing of that request was spent
local argument, at = ARGV[1], 1
local given, requests
given, requests, at = unpack('<dI2', argument, at)
local now = time_from(given)
local TAKE, LEASE, HOLD, SETTLE = 1, 12, 14, 15

local reply, answered = {pack('<d', now)}, 0
-- What was read of each key, and whether something was written: what fails after that may have been spent.
local states, is_written = {}, false
-- Whether a part of a request is written and the rest is not.
local is_in_doubt = false
-- The quick functions defined so far (quick/*.lua and quick/refund/*.lua), by strategy number.
local quicks, quick_refunds = {}, {}

-- The lease request passed to quick cases; created on first use.
local lease

local function new_lease()
  define_leases()
  local new = {index = 0, need = 0, length = 0, instances = 0}

  -- Reads its terms, which are at `from`; returns what comes after them, nothing where the driver has to look. What counts is forgotten
  -- after `retention`.
  function new.read(from, retention)
    local after = read_terms(new, argument, from)
    -- The driver sees to instances that leave, and to keys that were reset.
    if new.live_for == 0 or call('GET', KEYS[new.index + 1]) then
      return
    end
    -- Expired or reset units cannot be returned.
    if new.resets > 0 or new.recorded + retention <= now then
      new.unspent = 0
    end
    return after
  end

  -- The units to grant of `free`, and where they are recorded. This writes a heartbeat, so the state has been checked.
  function new.grant(free)
    new.instances = live_instances(KEYS[new.index + 2], new.id, new.live_for, now)
    local units = share_of(new, free)
    return units, lease_end(new, now, units)
  end

  return new
end

local function quick_of(number)
  quicks[number] = quicks[number] or new_quick(number)
  return quicks[number]
end

local function quick_refund_of(number)
  quick_refunds[number] = quick_refunds[number] or new_quick_refund(number)
  return quick_refunds[number]
end

-- What reservations.lua says of a table: the bytes of its head and of an entry, the most entries, and the longest hold.
local HEAD, ENTRY, MAX_ENTRIES, MAX_HOLD = 25, 69, 4096, 3600 * 1000000
-- How a reservation ends, beside at a cost: with its estimate, or because the attempt that made it is undone; + 8 if the
-- settlement is remembered although the caller did not choose the id.
local ESTIMATE, UNDONE, REMEMBERED = 1, 2, 8
-- The number of the strategy that is nothing but such a table.
local CONCURRENCY = 7

-- Returns a table as it is written, and its head, in its usual case: nothing has expired, and the clock is as it was. Returns
-- nothing where the driver has to look.
local function usual_table(key, hold)
  if states[key] then
    return
  end
  local text = call('GET', key)
  if not text then
    return '', 0, 0, 0
  end
  if #text < HEAD or text:byte() ~= 67 then
    return
  end
  local _, held, earliest, latest = unpack('<Bddd', text)
  if now >= earliest or latest > now + 2 * hold then
    return
  end
  return text, held, earliest, latest
end

local function write_table(key, entries, held, earliest, latest)
  call('SET', key, pack('<Bddd', 67, held, earliest, latest) .. entries, 'PX', time_to_live(latest, now))
end

-- An entry begins with the id, the digest of the request and the attempt, as `argument` has them. `AFTER_EXPIRY` is the offset of the expiry
-- time from the entry's end.
local NAME, AFTER_EXPIRY = 32, 9

-- Returns the place of a new entry in a table whose last entry expires at `latest`: the entries are in the order in which
-- they expire.
local function place_in(text, latest, expires_at)
  local first, behind = 0, (#text - HEAD) / ENTRY
  if latest <= expires_at then
    return #text + 1
  end
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    if unpack('<d', text, HEAD + (middle + 1) * ENTRY + 1 - AFTER_EXPIRY) <= expires_at then
      first = middle + 1
    else
      behind = middle
    end
  end
  return HEAD + first * ENTRY + 1
end

-- Reserves at one counter in the usual case: the id is new, and there is room. Returns whether it did.
local function hold_quickly(number, index, cost, ttl, from)
  local bytes, limit_at = unpack('<I2', argument, from + NAME + 1)
  local key, limit, hold, table_key = KEYS[index], 0, MAX_HOLD, KEYS[index + 1]
  if number == CONCURRENCY then
    limit, hold = unpack('<dd', argument, limit_at)
    table_key = key
  end
  local text, held, earliest, latest = usual_table(table_key, hold)
  if not text or #text >= HEAD + MAX_ENTRIES * ENTRY then
    return
  end
  -- The reservation may be known, or the attempt undone.
  if text:find(argument:sub(from, from + 15), HEAD + 1, true) then
    return
  end
  local outcome, recorded, is_admitted
  local window_end, count = 0, 0
  if number == CONCURRENCY then
    if cost == 0 then
      return
    end
    is_admitted = cost <= limit - held
    outcome = pack('<BBdd', is_admitted and 1 or 0, 1, held, latest)
  else
    local _
    outcome, _, _, recorded, window_end, count = quicks[number](key, argument, limit_at, now, cost)
    if not outcome then
      return
    end
    is_admitted = outcome:byte() == 1
  end
  local expires_at = now + ttl
  if is_admitted then
    is_in_doubt, is_written = cost > 0 and number ~= CONCURRENCY, true
    local entry = argument:sub(from, from + NAME - 1)
      .. pack('<dddI4dB', cost, recorded or now, window_end or 0, count or 0, expires_at, 0)
    if #text <= HEAD then
      write_table(table_key, entry, cost, expires_at, expires_at)
    else
      local place = place_in(text, latest, expires_at)
      local entries = text:sub(HEAD + 1, place - 1) .. entry .. text:sub(place)
      write_table(table_key, entries, held + cost, math.min(earliest, expires_at), math.max(latest, expires_at))
    end
    is_in_doubt = false
  end
  at = limit_at + bytes
  reply[#reply + 1] = pack('<BdI4d', 1, is_admitted and 1 or 0, 1, expires_at) .. outcome
  return true
end

-- Settles at one counter in the usual case: the reservation is there, and cost no more than its estimate. Returns whether it
-- did.
local function settle_quickly(number, index, cost, from)
  local ending, bytes, limit_at = unpack('<BI2', argument, from + NAME)
  if ending > ESTIMATE then
    return
  end
  local key, id = KEYS[index], argument:sub(from, from + 15)
  local table_key = number == CONCURRENCY and key or KEYS[index + 1]
  local text, held, earliest, latest = usual_table(table_key, MAX_HOLD)
  local place = text and text:find(id, HEAD + 1, true)
  local is_chosen = id:byte() % 2 == 1
  -- Other attempts may have confirmed a reservation whose id the caller chose.
  if is_chosen and place and text:find(id, place + ENTRY, true) then
    return
  end
  if not place or (place - HEAD - 1) % ENTRY ~= 0 or states[key] then
    return
  end
  local units, recorded, window_end, count, expires_at, state = unpack('<dddI4dB', text, place + NAME)
  local counted, refunded = ending == ESTIMATE and units or cost, 0
  if state ~= 0 or number ~= CONCURRENCY and counted > units then
    return
  end
  if number == CONCURRENCY then
    refunded = units
  elseif counted < units then
    local quick_refund = quick_refund_of(number)
    refunded = quick_refund and quick_refund(key, argument, limit_at, now, units - counted, recorded, window_end, count)
    if not refunded then
      return
    end
    is_in_doubt = true
  end
  is_written = true
  if #text == HEAD + ENTRY and not is_chosen then
    call('DEL', table_key)
  else
    local kept = ''
    if is_chosen then
      kept = text:sub(place, place + NAME - 1) .. pack('<dddI4dB', counted, recorded, window_end, count, expires_at, 1)
    end
    local entries = text:sub(HEAD + 1, place - 1) .. kept .. text:sub(place + ENTRY)
    earliest, latest = unpack('<d', entries, ENTRY + 1 - AFTER_EXPIRY), unpack('<d', entries, #entries + 1 - AFTER_EXPIRY)
    write_table(table_key, entries, held - units, earliest, latest)
  end
  is_in_doubt, at = false, limit_at + bytes
  reply[#reply + 1] = pack('<BdI4dddd', 1, 1, 1, units, counted, refunded, expires_at)
  return true
end

-- Answers a request that is one take, lease, reservation or settlement, in its usual case; if it is not, `at` stays.
local function answer_quickly()
  local count, number, verb, index, times, cost, extra, limit_at = unpack('<BBBI2I4dd', argument, at)
  local key, asked = KEYS[index], nil
  if count == 1 and verb == SETTLE then
    local is_read, is_done = pcall(settle_quickly, number, index, cost, limit_at)
    return is_read and is_done
  end
  if count == 1 and verb == HOLD and not states[key] and (number == CONCURRENCY or quick_of(number)) then
    local is_read, is_done = pcall(hold_quickly, number, index, cost, extra, limit_at)
    return is_read and is_done
  end
  if count > 1 or verb ~= TAKE and verb ~= LEASE or times > 1 or states[key] or not quick_of(number) then
    return false
  end
  if verb == LEASE then
    lease = lease or new_lease()
    asked = lease
    lease.index, lease.need, lease.length = index, cost, extra
  end
  local is_read, outcome, after, units, _, window_end, number_of_count =
    pcall(quicks[number], key, argument, limit_at, now, cost, asked)
  if not is_read or not outcome then
    return false
  end
  at, is_written = after, true
  if asked then
    reply[#reply + 1] = pack('<BdI4I4dI4I4', 1, units, lease.instances, 0, window_end or 0, number_of_count or 0, 1) .. outcome
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
