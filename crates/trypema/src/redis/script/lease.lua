-- Leases: the twin of strategy/lease.rs. Change both or neither.

-- Returns the units to grant of `free`.
local function share_of(lease, free)
  if lease.need > free then
    return 0
  end
  local fair = math.max(1, math.floor(free / lease.instances))
  return math.min(free, math.max(lease.need, math.min(lease.want, fair)))
end

-- Returns the end of a lease of `units`. One that is smaller than wanted is spent sooner, and need not last as long.
local function lease_end(lease, now, units)
  local part = math.max(SHORTEST_LEASE, math.min(1, units / math.max(1, lease.want)))
  return now + math.floor(lease.length * part)
end

-- Reads the terms of a lease, which `LeaseArgs::write` wrote at `at` of `argument`, into `lease`. Returns the position
-- after them.
local function read_terms(lease, argument, at)
  lease.want, lease.unspent, lease.recorded, lease.reported, lease.live_for, lease.resets, lease.id, lease.window_end,
    lease.count, at = unpack('<dddddI4c8dI4', argument, at)
  return at
end

return {share_of = share_of, lease_end = lease_end, read_terms = read_terms}
