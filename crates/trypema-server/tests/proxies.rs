//! The files in `deploy/`, unmodified: the samples with real proxies in front of a real server, the rest with
//! the tools that read them.

#![cfg(feature = "service")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what tests share has no other reader")]

/// Runs every case with every proxy.
macro_rules! with_each_proxy {
    ($($case:ident)*) => {
        mod nginx {
            $(#[test] fn $case() { super::$case(super::Kind::Nginx) })*
        }
        mod caddy {
            $(#[test] fn $case() { super::$case(super::Kind::Caddy) })*
        }
    };
}

#[path = "proxies/api_keys.rs"]
mod api_keys;
#[path = "proxies/application.rs"]
mod application;
#[path = "proxies/authenticator.rs"]
mod authenticator;
#[path = "service/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;
#[path = "proxies/failure.rs"]
mod failure;
#[path = "service/harness.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod harness;
#[path = "proxies/limits.rs"]
mod limits;
#[path = "proxies/litellm.rs"]
mod litellm;
#[path = "proxies/operations.rs"]
mod operations;
#[path = "proxies/paths.rs"]
mod paths;
#[path = "proxies/proxy.rs"]
mod proxy;
#[path = "proxies/published.rs"]
mod published;
#[path = "proxies/sessions.rs"]
mod sessions;
#[path = "proxies/several.rs"]
mod several;
#[path = "proxies/trust.rs"]
mod trust;
#[path = "proxies/users.rs"]
mod users;

use std::fs;
use std::path::PathBuf;

/// A window that is longer than any test.
const THREE_PER_ADDRESS: &str = "
rules:
  - {id: per-address, scope: ip, strategy: {absolute: {limit: 3, window: 1h}}}
";

/// Returns the path of a file in `deploy/`.
fn deployed(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy")).join(name)
}

/// Returns the text of a file in `deploy/`.
fn text_of(name: &str) -> String {
    fs::read_to_string(deployed(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}
