-- abuse: the twin of abuse/lease.rs. Change both or neither.

-- Nothing is leased. What an instance has denied out of memory is counted, if there still is the block it went by.
local function lease(limit, state, now, lease)
  local outcome = decide(limit, state, now, now, 0)
  if outcome.block > 0 and lease.seen > 0 then
    outcome = decide(limit, state, now, now, lease.seen)
    commit(limit, state, now, lease.seen, outcome)
  end
  return 0, outcome
end
