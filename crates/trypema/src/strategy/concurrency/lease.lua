-- Leases of the concurrency strategy: the twin of concurrency/lease.rs. Change both or neither.

-- Grants nothing: units that are held have a holder. The outcome is that of the call that asked.
local function lease(limit, state, now, lease)
  return 0, decide(limit, state, now, now, math.max(1, lease.need))
end
