-- Writes a state made of series. series.lua describes the layout.

-- Returns the size that the allocator of the Redis server uses for a string of `bytes`: it has four size
-- classes per power of two.
local function roomy(bytes)
  local power = 2 ^ math.floor(math.log(bytes + 16) / math.log(2))
  return math.ceil((bytes + 16) / (power / 4)) * (power / 4) - 16
end

-- Returns the rewritten string of a state, with spare room if it is long.
local function rewritten(prefix, list)
  local bytes, longest = #prefix, list[1]
  for i = 1, #list do
    local s = list[i]
    relocate(s, linear(s))
    s.room = s.pushed
    bytes = bytes + 55 + #s.tail
    if s.pushed > longest.pushed then
      longest = s
    end
  end
  if bytes > WHOLE then
    local least = 0
    for i = 1, #list do
      local s = list[i]
      s.room = s.pushed + math.max(8, math.floor(s.pushed / SPARE))
      least = least + (s.room - s.pushed) * (s.width + 6)
    end
    local size = longest.width + 6
    longest.room = longest.room + math.floor((roomy(bytes + least) - bytes - least) / size)
  end
  local heads, rings = {prefix}, {}
  for i = 1, #list do
    local s = list[i]
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
  redis.call('SETRANGE', key, s.base + at * size, s.tail:sub(1, first * size))
  if first < s.pushed then
    redis.call('SETRANGE', key, s.base, s.tail:sub(first * size + 1))
  end
end

-- Writes a state that was read as `text` and is needed until `fresh_from`. Deletes the key if that is 0.
local function save_series(key, text, prefix, list, now, fresh_from)
  if fresh_from == 0 then
    if #text > 0 then
      redis.call('DEL', key)
    end
    return
  end
  local is_in_place = #text >= WHOLE
  for i = 1, #list do
    local s = list[i]
    is_in_place = is_in_place and s.room > 0 and s.stored + s.pushed <= s.room
  end
  if not is_in_place then
    redis.call('SET', key, rewritten(prefix, list), 'PX', time_to_live(fresh_from, now))
    return
  end
  local heads = {prefix}
  for i = 1, #list do
    store_pushed(key, list[i])
    heads[i + 1] = head(list[i])
  end
  redis.call('SETRANGE', key, 0, table.concat(heads))
  redis.call('PEXPIRE', key, time_to_live(fresh_from, now))
end
