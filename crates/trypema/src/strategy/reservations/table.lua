-- The bytes of a table of reservations: the twin of `Entry` in reservations.rs. Change both or neither.
--   table    <B 'C'> <d units held> <d no entry expires earlier> <d every entry has expired by then>, then entries
--   entry    <c16 id, zeros without a name> <c8 digest of the request> <c8 attempt> <d units> <d recorded at>
--            <d end of the window that counted them, or 0> <I4 count that they joined> <d expires at> <B state>
-- The entries are in the order in which they expire. They stay one string: most calls look at the head only, or at one
-- entry.
local HEAD_BYTES = 25
-- The bytes of an entry before the time at which it expires.
local BEFORE_EXPIRY = 60

-- Reads the table that `write` below wrote. Returns its entries, the units held, and the two times of its head.
local function read(key)
  local text = call('GET', key)
  if not text then
    return '', 0, 0, 0
  end
  define('state')(text, TABLE_LETTER, HEAD_BYTES)
  local _, held, earliest, latest = unpack('<Bddd', text)
  return text:sub(HEAD_BYTES + 1), held, earliest, latest
end

local function expiry_at(entries, at)
  return (unpack('<d', entries, at + BEFORE_EXPIRY))
end

-- Returns the times of the head: the expiry of the first entry and that of the last one.
local function expiries(entries)
  if #entries == 0 then
    return 0, 0
  end
  return expiry_at(entries, 1), expiry_at(entries, #entries - ENTRY_BYTES + 1)
end

-- Writes a table, or deletes an empty one.
local function write(key, entries, held, now)
  if #entries == 0 then
    call('DEL', key)
    return
  end
  local earliest, latest = expiries(entries)
  local head = pack('<Bddd', TABLE_LETTER, held, earliest, latest)
  call('SET', key, head .. entries, 'PX', time_to_live(latest, now))
end

-- Returns the place of a new entry in a table whose last one expires at `latest`: after all that expire no later than
-- `expires_at`. Most expire last.
local function place_of(entries, latest, expires_at)
  local first, behind = 0, #entries / ENTRY_BYTES
  if latest <= expires_at then
    first = behind
  end
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    if expiry_at(entries, middle * ENTRY_BYTES + 1) <= expires_at then
      first = middle + 1
    else
      behind = middle
    end
  end
  return first * ENTRY_BYTES + 1
end

return {read = read, write = write, expiries = expiries, place_of = place_of}
