-- The reservations of a key: the twin of reservations.rs. Change both or neither.
--   table    <B 'C'> <d units held> <d no entry expires earlier> <d every entry has expired by then>, then entries
--   entry    <c16 id, zeros without a name> <c8 digest of the request> <c8 attempt> <d units> <d recorded at>
--            <d end of the window that counted them, or 0> <I4 count that they joined> <d expires at> <B state>
-- The entries are in the order in which they expire. They stay one string: most calls look at the head only, or at one
-- entry.
local HEAD_BYTES, ENTRY_BYTES, MAX_ENTRIES = 25, 69, 4096
-- The bytes of an entry before its units, and before the time at which it expires.
local BEFORE_UNITS, BEFORE_EXPIRY = 32, 60
-- One hour.
local LONGEST_HOLD = 3600000000
local ANONYMOUS = string.rep('\0', 16)
-- The states of an entry.
local OPEN, SETTLED, UNDONE, CONFIRMED = 0, 1, 2, 3

local function empty_table()
  return {entries = '', held = 0, earliest = 0, latest = 0}
end

local function load_table(key)
  local text = redis.call('GET', key)
  if not text then
    return empty_table()
  end
  check_state(text, 67, HEAD_BYTES)
  local _, held, earliest, latest = struct.unpack('<Bddd', text)
  return {entries = text:sub(HEAD_BYTES + 1), held = held, earliest = earliest, latest = latest, is_known = true}
end

local function save_table(key, t, now)
  if #t.entries == 0 then
    if t.is_known then
      redis.call('DEL', key)
    end
    return
  end
  local text = struct.pack('<Bddd', 67, t.held, t.earliest, t.latest) .. t.entries
  redis.call('SET', key, text, 'PX', time_to_live(t.latest, now))
end

local function entry_at(t, at)
  local e = {at = at}
  e.id, e.request, e.attempt, e.units, e.recorded, e.window_end, e.count, e.expires_at, e.state =
    struct.unpack('<c16c8c8dddI4dB', t.entries, at)
  return e
end

local function held_by(e)
  return e.state == OPEN and e.units or 0
end

local function packed(e)
  return struct.pack('<c16c8c8dddI4dB', e.id, e.request, e.attempt, e.units, e.recorded, e.window_end, e.count,
    e.expires_at, e.state)
end

-- Returns an entry without a name.
local function anonymous_entry(units, recorded, expires_at)
  return {
    id = ANONYMOUS, request = string.rep('\0', 8), attempt = string.rep('\0', 8), units = units, recorded = recorded,
    window_end = 0, count = 0, expires_at = expires_at, state = OPEN,
  }
end

local function expiry_at(t, at)
  return (struct.unpack('<d', t.entries, at + BEFORE_EXPIRY))
end

-- Updates `earliest` and `latest` from the first and last entry.
local function read_expiries(t)
  t.earliest, t.latest = 0, 0
  if #t.entries == 0 then
    t.held = 0
  else
    t.earliest, t.latest = expiry_at(t, 1), expiry_at(t, #t.entries - ENTRY_BYTES + 1)
  end
end

-- Puts `text` in the place of the entry at `at`.
local function replace_entry(t, at, text)
  t.entries = t.entries:sub(1, at - 1) .. text .. t.entries:sub(at + ENTRY_BYTES)
end

-- Replaces the entries by those that `change` returns, which are in their order again.
local function rebuild(t, change)
  local kept, held = {}, 0
  for at = 1, #t.entries, ENTRY_BYTES do
    local e = change(entry_at(t, at))
    if e then
      e.place = #kept
      kept[#kept + 1] = e
      held = held + held_by(e)
    end
  end
  table.sort(kept, function(one, other)
    if one.expires_at ~= other.expires_at then
      return one.expires_at < other.expires_at
    end
    return one.place < other.place
  end)
  for i, e in ipairs(kept) do
    kept[i] = packed(e)
  end
  t.entries, t.held = table.concat(kept), held
  read_expiries(t)
end

-- Returns the units that are held at `now`, and where the entries begin that have not expired.
local function live_at(t, now)
  local held, at = t.held, 1
  if now >= t.earliest then
    while at <= #t.entries do
      local units, _, _, _, expires_at, state = struct.unpack('<dddI4dB', t.entries, at + BEFORE_UNITS)
      if now < expires_at then
        break
      end
      held, at = held - (state == OPEN and units or 0), at + ENTRY_BYTES
    end
  end
  return held, at
end

-- Returns where the first entry at or after `from` begins that only remembers something: a settled one or a mark.
local function first_forgettable(t, from)
  for at = from, #t.entries, ENTRY_BYTES do
    local state = t.entries:byte(at + ENTRY_BYTES - 1)
    if state == SETTLED or state == UNDONE then
      return at
    end
  end
end

-- Whether another entry has room behind those before `from`, which have expired. In a full table, it takes the place of a
-- settled one or of a mark.
local function has_room(t, from)
  return #t.entries - from + 1 < MAX_ENTRIES * ENTRY_BYTES or first_forgettable(t, from) ~= nil
end

-- Returns the units that are held at `now`, and whether another entry has room.
local function held_at(t, now)
  local held, at = live_at(t, now)
  return held, has_room(t, at)
end

-- Forgets the entries that have expired.
local function forget_expired_entries(t, now)
  local held, at = live_at(t, now)
  if at > 1 then
    t.entries, t.held = t.entries:sub(at), held
    read_expiries(t)
  end
end

local function is_from_the_future(e, now, hold)
  return e.expires_at > now + 2 * hold and (e.recorded > now + hold or e.expires_at > now + hold + LONGEST_HOLD)
end

-- Returns the time at which every entry has expired, and whether one was made in the future: the clock went back by more
-- than `hold`. An entry that was made in time expires at the time that was returned to its holder, even if the limit has got
-- a much shorter hold since. A renewed entry shows the step by its expiry alone.
local function latest_expiry_at(t, now, hold)
  if t.latest <= now + 2 * hold then
    return t.latest, false
  end
  local latest, is_stepped_back = 0, false
  for at = 1, #t.entries, ENTRY_BYTES do
    local e = entry_at(t, at)
    local is_future = is_from_the_future(e, now, hold)
    latest = math.max(latest, is_future and now + hold or e.expires_at)
    is_stepped_back = is_stepped_back or is_future
  end
  return latest, is_stepped_back
end

-- Lets entries that were made in the future expire `hold` after `now`.
local function step_back(t, now, hold)
  rebuild(t, function(e)
    if is_from_the_future(e, now, hold) then
      e.expires_at = now + hold
    end
    return e
  end)
end

-- Returns the reservation with this id, settled or not, unless it has expired.
local function find_entry(t, id, now)
  local from = 1
  while true do
    local at = t.entries:find(id, from, true)
    if not at then
      return
    end
    -- The same bytes may occur across fields.
    if (at - 1) % ENTRY_BYTES == 0 then
      local e = entry_at(t, at)
      if e.state == OPEN or e.state == SETTLED then
        return now < e.expires_at and e or nil
      end
    end
    from = at + 1
  end
end

-- Returns the entry that the units of the new entry `new` join, if they do: see `insert` in reservations.rs. `place` is
-- where `new` goes otherwise.
local function joined_by(t, new, place)
  if new.id ~= ANONYMOUS then
    return
  end
  if #t.entries < MAX_ENTRIES * ENTRY_BYTES then
    local e = place > 1 and entry_at(t, place - ENTRY_BYTES)
    return e and e.id == ANONYMOUS and e.recorded == new.recorded and e.expires_at == new.expires_at and e or nil
  end
  for at = #t.entries - ENTRY_BYTES + 1, 1, -ENTRY_BYTES do
    local e = entry_at(t, at)
    if e.id == ANONYMOUS then
      return e
    end
  end
end

-- Returns the place of a new entry: after all that expire no later. Most expire last.
local function place_of(t, e)
  local first, behind = 0, #t.entries / ENTRY_BYTES
  if t.latest <= e.expires_at then
    first = behind
  end
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    if expiry_at(t, middle * ENTRY_BYTES + 1) <= e.expires_at then
      first = middle + 1
    else
      behind = middle
    end
  end
  return first * ENTRY_BYTES + 1
end

-- Adds an entry. In a full table, the settled entry or mark that expires first is forgotten. Units without a name join another entry
-- as `joined_by` says.
local function insert_entry(t, e)
  local forgotten = #t.entries >= MAX_ENTRIES * ENTRY_BYTES and first_forgettable(t, 1)
  if forgotten then
    replace_entry(t, forgotten, '')
    read_expiries(t)
  end
  t.held = t.held + held_by(e)
  local place = place_of(t, e)
  local joined = joined_by(t, e, place)
  if joined then
    replace_entry(t, joined.at, '')
    joined.units, joined.expires_at = joined.units + e.units, math.max(joined.expires_at, e.expires_at)
    e = joined
    place = place_of(t, e)
  end
  t.entries = t.entries:sub(1, place - 1) .. packed(e) .. t.entries:sub(place)
  read_expiries(t)
end

-- Returns the number of reservations with a name that are neither settled nor expired, and their entries.
local function live_entries(t, now)
  local live = {}
  for at = 1, #t.entries, ENTRY_BYTES do
    local e = entry_at(t, at)
    if now < e.expires_at and e.state == OPEN and e.id ~= ANONYMOUS then
      live[#live + 1] = packed(e)
    end
  end
  return #live, table.concat(live)
end

-- Gives back anonymous units that were recorded at `recorded`, or those that expire first if that is negative. Returns
-- their number.
local function release_anonymous(t, units, recorded, now)
  forget_expired_entries(t, now)
  local released = 0
  rebuild(t, function(e)
    if e.id == ANONYMOUS and (recorded < 0 or e.recorded == recorded) then
      local part = math.min(units, e.units)
      e.units, units, released = e.units - part, units - part, released + part
      if e.units == 0 then
        return
      end
    end
    return e
  end)
  return released
end
