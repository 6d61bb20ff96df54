-- Live instances: the twin of `LiveInstances` in the testkit's models. Change both or neither.
--
-- Format 1: a sorted set; a member is an instance (eight bytes, unique), its score the time of its last heartbeat in
-- microseconds. It lives as long as its last instance. Another format gets another key.

local digits = {}

-- Returns a whole number in digits. The leases of a script need the same few.
local function digits_of(number)
  if not digits[number] then
    digits[number] = string.format('%.0f', number)
  end
  return digits[number]
end

-- Notes the heartbeat of the instance `id`, which leaves if `live_for` is 0. Returns the number of instances whose
-- last heartbeat was less than `live_for` ago, at least 1.
local function live_instances(key, id, live_for, now)
  if live_for == 0 then
    call('ZREM', key, id)
    return math.max(1, call('ZCARD', key))
  end
  call('ZADD', key, digits_of(now), id)
  call('PEXPIRE', key, digits_of(ceil(live_for / 1000) + extra_ms))
  local instances = call('ZCARD', key)
  if instances > 1 then
    instances = instances - call('ZREMRANGEBYSCORE', key, '-inf', digits_of(now - live_for))
  end
  return instances
end

return live_instances
