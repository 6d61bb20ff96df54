-- Takes `cost` of the strategy `s` for each of `times` callers, one after the other, at the same moment. Adds to
-- `reply`, for each stretch of callers that get the same answer, <I4 how many> and the outcome. Of admitted callers it
-- is the first one's; those after it find what it spent, and so on.
return function(s, limit, state, now, cost, times, reply)
  -- If units are pending, each answer looks ahead for itself.
  local is_pending = state.pending and #state.pending > 0
  if times > 1 and cost > 0 and not is_pending then
    local together = math.min(times, math.floor(s.available(limit, state, now, cost * times) / cost))
    if together > 1 then
      local outcome = s.decide(limit, state, now, now, cost)
      s.commit(limit, state, now, cost * together, outcome)
      reply[#reply + 1] = pack('<I4', together) .. s.encode_outcome(limit, outcome)
      times = times - together
    end
  end
  while times > 0 do
    local was_changed = state.is_changed
    state.is_changed = false
    local outcome = s.decide(limit, state, now, now, cost)
    s.commit(limit, state, now, cost, outcome)
    -- A call that changed nothing answers for all that follow.
    local count = state.is_changed and 1 or times
    state.is_changed = state.is_changed or was_changed
    reply[#reply + 1] = pack('<I4', count) .. s.encode_outcome(limit, outcome)
    times = times - count
  end
end
