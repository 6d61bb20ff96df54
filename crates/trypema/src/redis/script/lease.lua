-- Leases: the twin of strategy/lease.rs. Change both or neither.

-- A lease is shortened, where less was granted than wanted, to this share of its length at most.
local SHORTEST = 0.25

-- The units to grant of `free`.
function share_of(lease, free)
  if lease.need > free then
    return 0
  end
  local fair = math.max(1, math.floor(free / lease.instances))
  return math.min(free, math.max(lease.need, math.min(lease.want, fair)))
end

-- When a lease of `units` ends. One that is smaller than wanted is spent sooner, and need not last as long.
function lease_end(lease, now, units)
  local part = math.max(SHORTEST, math.min(1, units / math.max(1, lease.want)))
  return now + math.floor(lease.length * part)
end

-- Reads the terms of a lease at `at` of `argument` into `lease`; returns what comes after them.
function read_terms(lease, argument, at)
  lease.want, lease.unspent, lease.recorded, lease.reported, lease.live_for, lease.resets, lease.id, lease.window_end,
    lease.count, at = unpack('<dddddI4c8dI4', argument, at)
  return at
end
