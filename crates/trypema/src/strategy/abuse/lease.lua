-- Leases of the abuse strategy: the twin of abuse/lease.rs. Change both or neither.

-- Counts the attempts that an instance denied because of a block that it remembered, if a block is still in
-- force. No units are leased.
local function lease(limit, state, now, lease)
  local outcome = decide(limit, state, now, now, 0)
  if outcome.block > 0 and lease.reported > 0 then
    outcome = decide(limit, state, now, now, lease.reported)
    commit(limit, state, now, lease.reported, outcome)
  end
  return 0, outcome
end
