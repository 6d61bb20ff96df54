-- The end of the driver: reads the requests that are not in their usual case, and answers them.

local reservations

-- Returns the functions of driver/reservations.lua.
local function reservation_verbs()
  reservations = reservations or define_reservation_verbs()
  return reservations
end

local IS_OF_TABLE = VERBS_OF_TABLE
local WITHOUT_LIMIT = VERBS_WITHOUT_LIMIT

local function read_check()
  local check, number = {}, 0
  number, check.verb, check.index, check.times, check.cost, check.extra, at =
    unpack('<BBI2I4dd', argument, at)
  check.number = number
  -- `needed` is the number of units that must be free, if that is not the cost.
  if check.verb >= DEBIT then
    check.verb, check.needed = check.verb - DEBIT, 0
  elseif check.verb >= POSTPAID then
    check.verb, check.needed = check.verb - POSTPAID, 1
  end
  if check.verb == HEARTBEAT then
    check.instance, at = unpack('<c8', argument, at)
    return check
  end
  check.strategy = strategy_of(number)
  if IS_OF_TABLE[check.verb] then
    local _
    check.id, check.request, check.attempt, check.ending, _, at = unpack('<c16c8c8BI2', argument, at)
    check.is_remembered = check.ending >= REMEMBERED
    check.ending = check.ending % REMEMBERED
  end
  if not WITHOUT_LIMIT[check.verb] then
    check.limit, at = check.strategy.read(argument, at)
  end
  if check.verb == REFUND then
    check.window_end, check.count, check.resets_at_take, at = unpack('<dI4I4', argument, at)
  end
  if check.verb == LEASE then
    check.lease = {need = check.cost, length = check.extra}
    at = require('lease').read_terms(check.lease, argument, at)
  end
  return check
end

-- Spends all checks of a request or none. One that is denied records what its strategy counts of denials.
local function all_or_nothing(checks, reply)
  local outcomes, is_admitted = {}, true
  for i, check in ipairs(checks) do
    outcomes[i] = check.strategy.decide(check.limit, check.entry.state, now, now, check.cost, check.needed)
    is_admitted = is_admitted and outcomes[i].admitted
  end
  for i, check in ipairs(checks) do
    local s, outcome = check.strategy, outcomes[i]
    -- Before the denial is recorded.
    local told = is_admitted and outcome or uncharged(check, check.entry.state, outcome)
    local record = s.record_denied_elsewhere
    if is_admitted or not outcome.admitted then
      record = s.commit
    end
    record_outcome(check, record, outcome)
    local resets, origin = 0, ''
    if check.verb == TAKE_WITH_RECEIPT then
      resets = is_admitted and keep_resets(check) or 0
      origin = pack('<dI4', origin_of(check.entry.state))
    end
    reply[#reply + 1] = pack('<Bd', 1, resets) .. origin .. pack('<I4', 1)
      .. s.encode_outcome(check.limit, told)
  end
end

local function failed(checks, why, reply)
  local text = tostring(type(why) == 'table' and why.err or why):sub(1, 500)
  for _ = 1, #checks do
    reply[#reply + 1] = pack('<BI2', 0, #text) .. text
  end
end

-- Reads all that a request needs. A key that holds something else fails its own request, and no other.
local function load_all(checks)
  for _, check in ipairs(checks) do
    if check.verb == HEARTBEAT then
      is_written = true
      check.instances = require('instances')(KEYS[check.index], check.instance, check.extra, now)
      return
    end
    check.entry = state_at(KEYS[check.index], check.strategy)
    check.held = IS_OF_TABLE[check.verb] and reservation_verbs().table_at(check)
    if WITH_RESETS[check.verb] then
      check.resets = resets_of(check.index)
    end
    if check.lease then
      is_written = true
      check.lease.instances =
        require('instances')(KEYS[check.index + 2], check.lease.id, check.lease.live_for, now)
    end
  end
end

local function answer(count)
  local checks = {}
  for i = 1, count do
    checks[i] = read_check()
  end
  local is_loaded, why = pcall(load_all, checks)
  if not is_loaded then
    failed(checks, why, reply)
  elseif checks[1].verb == RESERVE then
    reservation_verbs().reserve_all(checks, reply)
  elseif count == 1 then
    local stretches = {}
    local check = checks[1]
    local number = check.instances
    if number then
      -- A heartbeat has no state.
    elseif check.verb == RESET or check.verb == UNBLOCK then
      -- These replace the state.
      number = verbs[check.verb](check, check.entry.state)
    else
      local run = verbs[check.verb] or reservation_verbs()[check.verb]
      number = changing(check, run, stretches)
    end
    reply[#reply + 1] = pack('<Bd', 1, number) .. table.concat(stretches)
  else
    all_or_nothing(checks, reply)
  end
end

local function answer_all()
  for _ = answered + 1, requests do
    if not answer_quickly() then
      if is_in_doubt then
        error('a part of a reservation was written', 0)
      end
      local count
      count, at = unpack('<B', argument, at)
      answer(count)
    end
  end
  for _, entry in ipairs(order) do
    save_entry(entry)
  end
end

local is_done, why = pcall(answer_all)
if not is_done and is_written then
  return 'some of this may have been spent'
elseif not is_done then
  error(why, 0)
end
return table.concat(reply)
