-- reservations.lua in the usual case: one counter, nothing has expired, and the clock is as it was. The
-- reservation's id is at `from` of the driver's argument. Both functions return UNUSUAL in any other case, before
-- they write anything.
local tables = define('reservations/table')

-- Reads a table, unless an entry has expired or was made in the future.
local function read_usual(key)
  local entries, held, earliest, latest = tables.read(key)
  if #entries > 0 and now >= earliest or latest > now + 2 * MAX_HOLD then
    return UNUSUAL
  end
  return entries, held, latest
end

-- Reserves, if the id is new and the table has room. `take` is the usual case of a strategy that counts, `decide`
-- that of one that holds. Returns the reply, and the position after the check.
local function hold(key, table_key, cost, ttl, from, take, decide)
  local entries, held, latest = read_usual(table_key)
  -- The reservation may be known, or the attempt undone.
  local id = argument:sub(from, from + 15)
  if entries == UNUSUAL or #entries >= MAX_ENTRIES * ENTRY_BYTES or entries:find(id, 1, true) then
    return UNUSUAL
  end
  local bytes, limit_at = unpack('<I2', argument, from + BEFORE_UNITS + 1)
  local outcome, recorded, window_end, count, _
  if decide then
    outcome = decide(argument, limit_at, now, cost, held, latest)
  else
    outcome, _, _, recorded, window_end, count = take(key, argument, limit_at, now, cost)
  end
  if outcome == UNUSUAL then
    return UNUSUAL
  end
  local is_admitted, expires_at = outcome:byte() == 1, now + ttl
  if is_admitted then
    is_in_doubt, is_written = cost > 0 and not decide, true
    local entry = argument:sub(from, from + BEFORE_UNITS - 1)
      .. pack('<dddI4dB', cost, recorded or now, window_end or 0, count or 0, expires_at, OPEN)
    local place = tables.place_of(entries, latest, expires_at)
    tables.write(table_key, entries:sub(1, place - 1) .. entry .. entries:sub(place), held + cost, now)
    is_in_doubt = false
  end
  return pack('<BdI4d', 1, is_admitted and 1 or 0, 1, expires_at) .. outcome, limit_at + bytes
end

-- Settles, if the reservation is there, and cost no more than its estimate. `number` is that of the strategy, whose
-- units are held or counted. Returns the reply, and the position after the check.
local function settle(number, key, table_key, cost, from, is_held)
  local ending, bytes, limit_at = unpack('<BI2', argument, from + BEFORE_UNITS)
  local entries, held = read_usual(table_key)
  local id = argument:sub(from, from + 15)
  local place = ending <= AT_ESTIMATE and entries ~= UNUSUAL and entries:find(id, 1, true)
  local is_chosen = id:byte() % 2 == 1
  -- Other attempts may have confirmed a reservation whose id the caller chose.
  if not place or (place - 1) % ENTRY_BYTES ~= 0 or is_chosen and entries:find(id, place + ENTRY_BYTES, true) then
    return UNUSUAL
  end
  local units, recorded, window_end, count, expires_at, state = unpack('<dddI4dB', entries, place + BEFORE_UNITS)
  local counted, refunded = ending == AT_ESTIMATE and units or cost, 0
  if state ~= OPEN or not is_held and counted > units then
    return UNUSUAL
  end
  if is_held then
    refunded = units
  elseif counted < units then
    local refund = define('quick_refund', number)
    refunded = refund and refund(key, argument, limit_at, now, units - counted, recorded, window_end, count)
    if refunded == UNUSUAL then
      return UNUSUAL
    end
    is_in_doubt = true
  end
  is_written = true
  local kept = ''
  if is_chosen then
    kept = entries:sub(place, place + BEFORE_UNITS - 1)
      .. pack('<dddI4dB', counted, recorded, window_end, count, expires_at, SETTLED)
  end
  tables.write(table_key, entries:sub(1, place - 1) .. kept .. entries:sub(place + ENTRY_BYTES), held - units, now)
  is_in_doubt = false
  return pack('<BdI4dddd', 1, 1, 1, units, counted, refunded, expires_at), limit_at + bytes
end

return {hold = hold, settle = settle}
