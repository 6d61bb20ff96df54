//! A server that may be somebody else's.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

use trypema::clock::{Clock, SystemClock};

use super::{Control, Result, Server};

/// A server for tests that need no more than its address.
///
/// If `REDIS_URL` is set it is the server found there, which is shared with whatever else uses it: nothing may be
/// flushed, and keys begin with [`unique_prefix`](Shared::unique_prefix). Otherwise it is a server of this test's
/// own, gone when this is dropped.
#[derive(Debug)]
pub struct Shared {
    url: String,
    _server: Option<Server>,
}

impl Shared {
    pub(crate) fn open() -> Result<Self> {
        if let Ok(url) = env::var("REDIS_URL") {
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
