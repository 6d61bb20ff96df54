-- Any number of requests, decided in their order; each a list of checks that are spent all or none.
-- KEYS     the states, each followed by its helpers: for `reserve` and `reset` the count of resets, for `refund` that and
--          what remembers the receipt, for `lease` that and the instances that share the key, for `reset` that and the
--          reservations, for the verbs of reservations these alone, unless the strategy is a table of reservations
-- ARGV[1]  <d now, -1 = the server's> <I2 requests>, for each <B checks>, for each
--          <B strategy> <B verb, + 32 if postpaid, + 64 if a debit> <I2 index of the state in KEYS> <I4 times> <d cost> <d extra>,
--          for `hold`, `settle`, `renew` and `holders` <c16 id> <c8 digest of the request> <c8 attempt> <B how it ends> <I2 bytes of the
--          limit>, then the limit, unless the verb has none,
--          and for `heartbeat`, which has no strategy, <c8 instance> (extra is for how long it is live),
--          for `refund` <d end of the window that counted them, or 0> <I4 count that they joined>,
--          and for `lease` <d want> <d units back> <d recorded at> <d seen> <d live for> <I4 resets> <c8 instance>, and the same
-- returns  <d now>, then for each check <B 1> <d number> and, for verbs that decide, stretches as `take` adds them,
--          for `lease` after <I4 instances> <I4 resets>, and for it and `reserve` after the count that the units joined,
--          as for `refund`; `hold`, `settle`, `renew` and `holders` answer <I4 1> and then
--          <d expires at> and the outcome; <d reserved> <d counted> <d refunded> <d would have expired at>;
--          <d would have expired at> <d expires at>; and as many entries of reservations.lua as the number says;
--          or <B 0> <I2 length> and why its request failed: then nothing of that request was spent
local argument = ARGV[1]
local now, requests, at = unpack('<dI2', argument)
-- Whether something was written: a request that fails after that may have been spent. Whether a part of a request is
-- written and the rest is not.
local is_written, is_in_doubt = false, false
