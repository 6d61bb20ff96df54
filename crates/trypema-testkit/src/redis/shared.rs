//! A Redis server that may already exist and be shared.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

use trypema::clock::{Clock, SystemClock};

use super::{Control, Error, Result, Server};

/// A server for tests that only need its address.
///
/// If `REDIS_URL` is set, this is the server at that URL; if `REDIS_PORT` is set, the one on that local
/// port. Such a server is shared with other users: tests must not flush it, and their keys begin with
/// [`unique_prefix`](Shared::unique_prefix). Otherwise this is a new server, which is killed when dropped.
#[derive(Debug)]
pub struct Shared {
    url: String,
    _server: Option<Server>,
}

impl Shared {
    pub(crate) fn open() -> Result<Self> {
        if let Some(url) = existing(env::var("REDIS_URL").ok(), env::var("REDIS_PORT").ok())? {
            return Ok(Self { url, _server: None });
        }
        let server = Server::start()?;
        Ok(Self { url: server.url(), _server: Some(server) })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a connection for commands. The URL has to begin with `redis://`.
    pub fn control(&self) -> Result<Control> {
        Control::open(&self.url)
    }

    /// Returns a key prefix that no other test, process or earlier run has used.
    pub fn unique_prefix(&self) -> String {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        format!("test-{}-{}-{given}", std::process::id(), SystemClock.now().as_micros())
    }
}

/// Returns the address of an existing server: a URL, or a local port. The URL takes precedence. An empty
/// value counts as not set.
fn existing(url: Option<String>, port: Option<String>) -> Result<Option<String>> {
    let is_set = |value: &String| !value.is_empty();
    if let Some(url) = url.filter(is_set) {
        return Ok(Some(url));
    }
    let Some(port) = port.filter(is_set) else { return Ok(None) };
    match port.parse::<u16>() {
        Ok(number) if number > 0 => Ok(Some(format!("redis://127.0.0.1:{number}"))),
        _ => Err(Error::new(format!("REDIS_PORT: {port:?} is not a port: need 1 to 65535"))),
    }
}

#[cfg(test)]
mod tests {
    use super::existing;

    fn found(url: &str, port: &str) -> Result<Option<String>, String> {
        existing(Some(url.to_owned()), Some(port.to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_takes_precedence_over_a_port() {
        assert_eq!(found("redis://example:1", "6380"), Ok(Some("redis://example:1".to_owned())));
        assert_eq!(found("", "6380"), Ok(Some("redis://127.0.0.1:6380".to_owned())));
        assert_eq!(found("", ""), Ok(None));
        for wrong in ["0", "65536", "redis", "-1", " 6379"] {
            assert!(found("", wrong).is_err_and(|error| error.contains("REDIS_PORT")), "{wrong}");
        }
    }
}
