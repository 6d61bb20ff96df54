//! What is in `deploy/`, as it is: the samples with real proxies before a real service, the rest with the tools that read it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what tests share has no other reader")]

#[path = "proxies/application.rs"]
mod application;
#[path = "proxies/behaviour.rs"]
mod behaviour;
#[path = "service/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;
#[path = "service/harness.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod harness;
#[path = "proxies/operations.rs"]
mod operations;
#[path = "proxies/proxy.rs"]
mod proxy;

use std::fs;
use std::path::PathBuf;

/// A file of `deploy/`.
fn deployed(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy")).join(name)
}

/// Its text.
fn text_of(name: &str) -> String {
    fs::read_to_string(deployed(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}
