-- Any number of requests, decided in their order; each is a list of checks that are spent all or none.
-- KEYS     the state of each check, followed by the helper keys of its verb
-- ARGV[1]  <d now, -1 = the server's> <I2 requests>, for each <B checks>, for each what redis/verb.rs lists
-- returns  <d now>, then for each check what redis/verb.rs lists; or <B 0> <I2 length> and why its request failed: then
--          nothing of that request was spent
local argument = ARGV[1]
local now, requests, at = unpack('<dI2', argument)
-- Whether something was written: a request that fails after that may have been spent. Whether a part of a request is
-- written and the rest is not.
local is_written, is_in_doubt = false, false
