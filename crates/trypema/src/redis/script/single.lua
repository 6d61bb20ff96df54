-- The usual case is over before the rest of the strategy is defined.
local quick = times == 1 and define('quick')
local outcome = quick and quick(KEYS[1], argument, at, now, cost)
if outcome then
  return pack('<dI4', now, 1) .. outcome
end

-- Every part is needed once.
require = define
local strategy = define('strategy')
local limit = strategy.read(argument, at)
local state = strategy.load(KEYS[1])
local reply = {pack('<d', now)}
define('take')(strategy, limit, state, now, cost, times, reply)
if state.is_changed then
  strategy.save(KEYS[1], limit, state, now)
end
return table.concat(reply)
