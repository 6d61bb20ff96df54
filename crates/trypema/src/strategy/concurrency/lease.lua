-- Leases of the concurrency strategy: the twin of concurrency/lease.rs. Change both or neither.

-- Grants nothing: units that are held have a holder.
local function lease(limit, state, now)
  return 0, decide(limit, state, now, now, 0)
end
