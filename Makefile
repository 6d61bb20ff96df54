# Short names for commands of `cargo xtask`, which has all others.

.PHONY: test test-redis

# Everything that CI runs.
test:
	cargo xtask test

# The library on Redis. REDIS_URL or REDIS_PORT points the tests that need only a server at a running one.
test-redis:
	cargo xtask test redis
