//! `trypema keys`: single counters, and what they get in place of their rule's limit.

use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::service::{AdminService, Call, encoded};
use super::{failed, print};

/// Work on single keys
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Show what a key has left
    Show(Key),
    /// Forget what a key has spent
    Reset(Key),
    /// Deny a key, whatever it has left, on all servers
    Block(Key),
    /// Let a key pass its rule, on all servers
    Allow(Key),
    /// Take back what a key got in place of its rule's limit: a block, a pass or another limit
    Unblock(Key),
}

/// A key, and who knows it.
#[derive(Debug, clap::Args)]
pub(super) struct Key {
    /// The key as answers tell it, as in `per-user|user=ann`
    key: String,
    #[command(flatten)]
    service: AdminService,
}

impl Keys {
    pub(super) fn run(self) -> ExitCode {
        let done = match &self {
            Self::Show(key) => key.call(Method::GET, "keys", None),
            Self::Reset(key) => key.call(Method::DELETE, "keys", None),
            Self::Block(key) => key.call(Method::PUT, "overrides", Some(&json!({"verdict": "block"}))),
            Self::Allow(key) => key.call(Method::PUT, "overrides", Some(&json!({"verdict": "allow"}))),
            Self::Unblock(key) => key.call(Method::DELETE, "overrides", None),
        };
        match done {
            Ok(answer) => {
                print(&format!("{answer:#}\n"));
                ExitCode::SUCCESS
            }
            Err(error) => {
                failed(error);
                ExitCode::FAILURE
            }
        }
    }
}

impl Key {
    fn call(&self, method: Method, what: &str, body: Option<&Value>) -> Result<Value, String> {
        let path = format!("/v1/{what}/{}", encoded(&self.key));
        self.service.call(&Call { body, ..Call::new(method, &path) })
    }
}
