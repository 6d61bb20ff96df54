-- What every script starts with: the time, asked for once, and what the strategies do with it.

-- Looked up once: each use costs less.
local call, pack, unpack, ceil = redis.call, struct.pack, struct.unpack, math.ceil

-- Given times are the callers' own, and their clocks may differ by this much: keys live that much longer.
local CLOCKS_DIFFER_MS = 60000
local extra_ms = 0

-- The time to go by: the one that was given, or the server's.
local function time_from(given)
  if given >= 0 then
    extra_ms = CLOCKS_DIFFER_MS
    return given
  end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- In whole milliseconds, how long a key must live that matters until `moment`.
local function time_to_live(moment, now)
  return math.max(1, ceil((moment - now) / 1000)) + extra_ms
end

-- Returns if `text` is a state in format 1 of the strategy whose letter is `tag`: the letter, then what the head of the
-- strategy's file lists, at least `bytes` in all. A later format begins with the letter + 128 and a byte that holds its
-- number. It is an error here, so that a server that does not know a format neither misreads nor overwrites it; so is a
-- string that another program or strategy wrote.
local function check_state(text, tag, bytes)
  local first = text:byte()
  if first == tag and #text >= bytes then
    return
  end
  if first == tag + 128 then
    error('state was written by a newer version of trypema', 0)
  end
  error('the key holds something that is not a state of this strategy', 0)
end
