-- Writes a state made of series. series/ring.lua and quick/series.lua read it.

-- A rewritten ring gets a spare slot for every this many buckets, and at least eight, so that rewriting is
-- rare.
local SPARE = 16

local function head(s)
  local short = pack('<I7I4I7', s.first, s.newest - s.first, s.open)
  if s.stored + s.pushed == 0 and s.room == 0 then
    return short .. pack('<I6', s.horizon)
  end
  return short .. pack('<I6I7I7I7I3I3I3B', s.horizon + HAS_CLOSED, s.closed, s.oldest, s.through, s.start,
    s.stored + s.pushed, s.room, s.width)
end

-- Returns the size that the allocator of the Redis server uses for a string of `bytes`: it has four size
-- classes per power of two.
local function roomy(bytes)
  local power = 2 ^ math.floor(math.log(bytes + 16) / math.log(2))
  return ceil((bytes + 16) / (power / 4)) * (power / 4) - 16
end

-- Returns the rewritten string of a state, with spare room if it is long.
local function rewritten(prefix, list)
  local bytes, longest = #prefix, list[1]
  for _, s in ipairs(list) do
    gather(s)
    s.room = s.pushed
    bytes = bytes + 55 + #s.tail
    if s.pushed > longest.pushed then
      longest = s
    end
  end
  if bytes > WHOLE then
    local least = 0
    for _, s in ipairs(list) do
      s.room = s.pushed + math.max(8, math.floor(s.pushed / SPARE))
      least = least + (s.room - s.pushed) * (s.width + 6)
    end
    local size = longest.width + 6
    longest.room = longest.room + math.floor((roomy(bytes + least) - bytes - least) / size)
  end
  local heads, rings = {prefix}, {}
  for i, s in ipairs(list) do
    heads[i + 1] = head(s)
    rings[i] = s.tail .. string.rep('\0', (s.room - s.pushed) * (s.width + 6))
  end
  return table.concat(heads) .. table.concat(rings)
end

-- Writes the buckets that were closed since the string was read into their slots.
local function store_pushed(key, s)
  if s.pushed == 0 then
    return
  end
  local size = s.width + 6
  local at = (s.start + s.stored) % s.room
  local first = math.min(s.pushed, s.room - at)
  call('SETRANGE', key, s.base + at * size, s.tail:sub(1, first * size))
  if first < s.pushed then
    call('SETRANGE', key, s.base, s.tail:sub(first * size + 1))
  end
end

-- Writes a state that was read as `text`.
local function save(key, text, prefix, list, ttl)
  local is_in_place = #text >= WHOLE
  for _, s in ipairs(list) do
    is_in_place = is_in_place and s.room > 0 and s.stored + s.pushed <= s.room
  end
  if not is_in_place then
    call('SET', key, rewritten(prefix, list), 'PX', ttl)
    return
  end
  local heads = {prefix}
  for i, s in ipairs(list) do
    store_pushed(key, s)
    heads[i + 1] = head(s)
  end
  call('SETRANGE', key, 0, table.concat(heads))
  call('PEXPIRE', key, ttl)
end

return save
