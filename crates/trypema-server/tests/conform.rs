//! Tests that the server makes the same decisions as the library, and does what its documentation says. All
//! are in one test binary, so that it is linked once.

#![cfg(feature = "service")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what tests share has no other reader")]

#[path = "conform/api.rs"]
mod api;
#[path = "conform/cli.rs"]
mod cli;
#[path = "service/client.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod client;
#[path = "conform/docs.rs"]
mod docs;
#[path = "conform/folder.rs"]
mod folder;
#[cfg(feature = "unstable-testkit")]
#[path = "service/front_ends.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod front_ends;
#[path = "conform/guides.rs"]
mod guides;
#[path = "service/harness.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod harness;
#[path = "conform/in_process.rs"]
mod in_process;
#[path = "conform/logs.rs"]
mod logs;
#[path = "conform/metrics.rs"]
mod metrics;
#[path = "conform/openapi.rs"]
mod openapi;
#[path = "conform/redis_acl.rs"]
mod redis_acl;
#[path = "service/redis_user.rs"]
mod redis_user;
#[path = "conform/reload.rs"]
mod reload;
#[path = "conform/rule_traces.rs"]
mod rule_traces;
#[path = "conform/spans.rs"]
mod spans;
#[path = "service/threads.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod threads;
#[path = "conform/traces.rs"]
mod traces;
