//! A server that may be somebody else's.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

use trypema::clock::{Clock, SystemClock};

use super::{Control, Error, Result, Server};

/// A server for tests that need no more than its address.
///
/// If `REDIS_URL` is set it is the server found there, and if `REDIS_PORT` is set the one on that port of this machine. Such a server is
/// shared with whatever else uses it: nothing may be flushed, and keys begin with [`unique_prefix`](Shared::unique_prefix). Otherwise it is
/// a server of this test's own, gone when this is dropped.
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

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A new connection to command it through; only to an address that begins with `redis://`.
    pub fn control(&self) -> Result<Control> {
        Control::open(&self.url)
    }

    /// What keys can begin with that no other test, process or earlier run has used.
    pub fn unique_prefix(&self) -> String {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        format!("test-{}-{}-{given}", std::process::id(), SystemClock.now().as_micros())
    }
}

/// The address of a server that runs already: a URL, or a port of this machine. The URL takes precedence; what is empty is not set.
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
