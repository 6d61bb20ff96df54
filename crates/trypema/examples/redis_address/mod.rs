//! Which Redis an example uses.

/// The first argument, `REDIS_URL`, or `REDIS_PORT` of this machine, whichever is set first; the default port of this machine otherwise.
pub(crate) fn chosen() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let on_port = || variable("REDIS_PORT").map(|port| format!("redis://127.0.0.1:{port}"));
    let url = std::env::args().nth(1).or_else(|| variable("REDIS_URL")).or_else(on_port);
    url.unwrap_or_else(|| "redis://127.0.0.1".to_owned())
}
