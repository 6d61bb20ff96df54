//! Rules in PostgreSQL, with real PostgreSQL and Redis servers and the real binary. All are in one test
//! binary, so that it is linked once.

#![cfg(feature = "service")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what tests share has no other reader")]

#[path = "database/access.rs"]
mod access;
#[path = "database/adopting.rs"]
mod adopting;
#[path = "database/candidates.rs"]
mod candidates;
#[path = "database/cli.rs"]
mod cli;
#[path = "service/client.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod client;
#[path = "database/constraints.rs"]
mod constraints;
#[path = "database/editing.rs"]
mod editing;
#[path = "database/faults.rs"]
mod faults;
#[path = "database/fleet.rs"]
mod fleet;
#[path = "service/harness.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod harness;
#[path = "database/history.rs"]
mod history;
#[path = "database/permissions.rs"]
mod permissions;
#[path = "database/readers.rs"]
mod readers;
#[path = "service/redis_user.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod redis_user;
#[path = "database/scene.rs"]
mod scene;
#[path = "service/threads.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod threads;
