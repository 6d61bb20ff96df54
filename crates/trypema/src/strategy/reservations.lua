-- The reservations of a key: the twin of reservations.rs. Change both or neither.
-- reservations/table.lua describes the layout.
local tables = require('reservations/table')

local ANONYMOUS = string.rep('\0', 16)

local function load(key)
  local t = {}
  t.entries, t.held, t.earliest, t.latest = tables.read(key)
  t.is_known = #t.entries > 0
  return t
end

local function save(key, _, t, now)
  if #t.entries > 0 or t.is_known then
    tables.write(key, t.entries, t.held, now)
  end
end

-- Reads the entry at `at`, which `packed` below or quick/reservations.lua wrote.
local function entry_at(t, at)
  local e = {at = at}
  e.id, e.request, e.attempt, e.units, e.recorded, e.window_end, e.count, e.expires_at, e.state =
    unpack('<c16c8c8dddI4dB', t.entries, at)
  return e
end

local function packed(e)
  return pack('<c16c8c8dddI4dB', e.id, e.request, e.attempt, e.units, e.recorded, e.window_end, e.count,
    e.expires_at, e.state)
end

-- Replaces the entries.
local function set_entries(t, entries)
  t.entries = entries
  t.earliest, t.latest = tables.expiries(entries)
  t.held = #entries > 0 and t.held or 0
end

-- Puts `e` in the place of the entry at `at`, or removes that one if there is no `e`.
local function replace(t, at, e)
  set_entries(t, t.entries:sub(1, at - 1) .. (e and packed(e) or '') .. t.entries:sub(at + ENTRY_BYTES))
end

local function held_by(e)
  return e.state == OPEN and e.units or 0
end

-- Returns an entry without a name.
local function anonymous_entry(units, recorded, expires_at)
  return {
    id = ANONYMOUS, request = string.rep('\0', 8), attempt = string.rep('\0', 8), units = units, recorded = recorded,
    window_end = 0, count = 0, expires_at = expires_at, state = OPEN,
  }
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
  t.held = held
  set_entries(t, table.concat(kept))
end

-- Returns the units that are held at `now`, and where the entries begin that have not expired.
local function live_at(t, now)
  local held, at = t.held, 1
  if now >= t.earliest then
    while at <= #t.entries do
      local units, _, _, _, expires_at, state = unpack('<dddI4dB', t.entries, at + BEFORE_UNITS)
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

-- Whether another entry has room behind those before `from`, which have expired. In a full table, it takes the place
-- of a settled one or of a mark.
local function has_room(t, from)
  return #t.entries - from + 1 < MAX_ENTRIES * ENTRY_BYTES or first_forgettable(t, from) ~= nil
end

-- Returns the units that are held at `now`, and whether another entry has room.
local function held_at(t, now)
  local held, at = live_at(t, now)
  return held, has_room(t, at)
end

-- Forgets the entries that have expired.
local function forget_expired(t, now)
  local held, at = live_at(t, now)
  if at > 1 then
    t.held = held
    set_entries(t, t.entries:sub(at))
  end
end

local function is_from_the_future(e, now, hold)
  return e.expires_at > now + 2 * hold and (e.recorded > now + hold or e.expires_at > now + hold + MAX_HOLD)
end

-- Returns the time at which every entry has expired, and whether one was made in the future: the clock went back by
-- more than `hold`. An entry that was made in time expires at the time that was returned to its holder, even if the
-- limit has got a much shorter hold since. A renewed entry shows the step by its expiry alone.
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

-- Returns the entries with this id that have not expired, in their order.
local function entries_of(t, id, now)
  local found, from = {}, 1
  while true do
    local at = t.entries:find(id, from, true)
    if not at then
      return found
    end
    from = at + 1
    -- The same bytes may occur across fields.
    if (at - 1) % ENTRY_BYTES == 0 then
      local e = entry_at(t, at)
      found[#found + 1] = now < e.expires_at and e or nil
    end
  end
end

-- Returns the reservation with this id, settled or not, unless it has expired.
local function find(t, id, now)
  for _, e in ipairs(entries_of(t, id, now)) do
    if e.state == OPEN or e.state == SETTLED then
      return e
    end
  end
end

-- Returns the entry that the units of the new entry `new` join, if they do: see `insert` in reservations.rs. `place`
-- is where `new` goes otherwise.
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

-- Adds an entry. In a full table, the settled entry or mark that expires first is forgotten. Units without a name
-- join another entry as `joined_by` says.
local function insert(t, e)
  local forgotten = #t.entries >= MAX_ENTRIES * ENTRY_BYTES and first_forgettable(t, 1)
  if forgotten then
    replace(t, forgotten)
  end
  local held = t.held + held_by(e)
  local joined = joined_by(t, e, tables.place_of(t.entries, t.latest, e.expires_at))
  if joined then
    replace(t, joined.at)
    joined.units, joined.expires_at = joined.units + e.units, math.max(joined.expires_at, e.expires_at)
    e = joined
  end
  local place = tables.place_of(t.entries, t.latest, e.expires_at)
  set_entries(t, t.entries:sub(1, place - 1) .. packed(e) .. t.entries:sub(place))
  t.held = held
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
  forget_expired(t, now)
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

return {
  load = load, save = save, entries_of = entries_of, replace = replace, held_by = held_by,
  anonymous_entry = anonymous_entry, has_room = has_room, held_at = held_at, forget_expired = forget_expired,
  latest_expiry_at = latest_expiry_at, step_back = step_back, find = find, insert = insert,
  live_entries = live_entries, release_anonymous = release_anonymous,
}
