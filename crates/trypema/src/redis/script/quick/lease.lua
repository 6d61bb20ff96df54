-- Leases in the usual case: nobody leaves, and the key was not reset.
local leases, live_instances = define('lease'), define('instances')

-- Reads the terms at `from` of `argument`. Units count for `retention` after they were recorded. Returns the position
-- after the terms.
local function read(lease, argument, from, retention)
  local after = leases.read_terms(lease, argument, from)
  if lease.live_for == 0 or call('GET', KEYS[lease.index + 1]) then
    return UNUSUAL
  end
  -- Expired or reset units cannot be returned.
  if lease.resets > 0 or lease.recorded + retention <= lease.now then
    lease.unspent = 0
  end
  return after
end

-- Returns the units to grant of `free`, and the time at which they are recorded. This writes a heartbeat, so the state
-- has been checked.
local function grant(lease, free)
  local now = lease.now
  lease.instances = live_instances(KEYS[lease.index + 2], lease.id, lease.live_for, now)
  local units = leases.share_of(lease, free)
  return units, leases.lease_end(lease, now, units)
end

-- Returns a request for leases. The caller sets `index`, the position of the state in KEYS, `need` and `length`. The
-- 16 fields fill the table's hash part exactly.
local function new(now)
  return {
    read = read, grant = grant, now = now, index = 0, need = 0, length = 0, want = 0, unspent = 0, recorded = 0,
    reported = 0, live_for = 0, resets = 0, id = '', window_end = 0, count = 0, instances = 0,
  }
end

return new
