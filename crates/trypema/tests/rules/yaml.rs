//! Rules from YAML: the files under `testdata/rules`, edge cases of YAML, damaged files, and the JSON Schema.
#![cfg(feature = "rules")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod corpus;
mod damage;
mod edges;
mod expected;
mod files;
mod schema;
