//! Rules from YAML: the files under `testdata/rules`, what is at the edges of YAML, damaged files, and the JSON Schema.
#![cfg(feature = "rules")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

#[path = "rules_yaml/corpus.rs"]
mod corpus;
#[path = "rules_yaml/damage.rs"]
mod damage;
#[path = "rules_yaml/edges.rs"]
mod edges;
#[path = "rules_yaml/expected.rs"]
mod expected;
#[path = "rules_yaml/files.rs"]
mod files;
#[path = "rules_yaml/schema.rs"]
mod schema;
