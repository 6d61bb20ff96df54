-- Leases of a suppressed limit: the twin of suppressed/lease.rs. Change both or neither.

-- Refunds the unspent units, and adds the reported calls to the observed ones. A lease is not a call, so the
-- two series differ from the first lease on.
local function apply_returns(limit, state, now, lease)
  if not state.observed then
    state.observed = copy_of(state.accepted)
  end
  repair_observed(limit, state, now)
  if lease.unspent > 0 then
    refund_series(state.accepted, now, limit.window, limit.group, lease.unspent, lease.recorded)
  end
  if lease.reported > 0 then
    local used, expired, is_stepped_back = view(state.observed, now, limit.window)
    record(state.observed, now, limit.window, used, expired, is_stepped_back, now, limit.group,
      countable(lease.reported, used))
  end
end

-- Records a lease as accepted units, and updates its outcome.
local function record_lease(limit, state, now, units, stamp, o)
  local s, window = state.accepted, limit.window
  if units == 0 then
    if o.is_stepped_back then
      forget_expired(s, now, o.used, o.expired, true)
    end
    return
  end
  state.capacity = o.soft
  stamp = math.min(stamp, now + window)
  o.recorded = recorded_at(s, now, o.used, o.is_stepped_back, stamp)
  o.resets_at = o.recorded + window
  record(s, now, window, o.used, o.expired, o.is_stepped_back, stamp, limit.group, units)
end

local function lease(limit, state, now, lease)
  apply_returns(limit, state, now, lease)
  state.is_changed = true
  local cost = math.max(1, lease.need)
  local o = decide(limit, state, now, now, cost)
  local room = math.max(0, hard_of(limit, o.soft) - o.used)
  local free = math.max(0, o.soft - o.used)
  local units = share_of(lease, free)
  if units > 0 then
    o.zone = 1
  elseif cost > free and cost <= room then
    -- The calls that the instance reported are observed already.
    local share = share_observed(limit, state, now, o.soft, 0)
    state.drawn = (last_drawn(limit, state, now, o.used) + GOLDEN) % 2 ^ 32
    units = math.floor(lease.want * share + state.drawn / 2 ^ 32)
    units = math.min(units, math.max(1, math.floor(room / lease.instances)))
    o.factor, o.zone = 1 - share, units > 0 and 3 or 2
  end
  record_lease(limit, state, now, units, lease_end(lease, now, units), o)
  return units, o
end
