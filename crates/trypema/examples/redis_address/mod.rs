//! Selects the Redis server of an example.

/// Returns the first of these that is set: the first argument, `REDIS_URL`, or `REDIS_PORT` on this machine.
/// Defaults to the standard port on this machine.
pub(crate) fn chosen() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let on_port = || variable("REDIS_PORT").map(|port| format!("redis://127.0.0.1:{port}"));
    let url = std::env::args().nth(1).or_else(|| variable("REDIS_URL")).or_else(on_port);
    url.unwrap_or_else(|| "redis://127.0.0.1".to_owned())
}
