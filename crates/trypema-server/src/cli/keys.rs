//! `trypema keys`: shows, resets and overrides single keys.

use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::service::{AdminService, Call, encoded};
use super::{failed, print};

/// Work with single keys
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Show the remaining units of a key
    Show(Key),
    /// Reset a key: forget its spent units
    Reset(Key),
    /// Block a key: deny all of its requests, on all servers
    Block(Key),
    /// Allow a key: exempt it from its rule, on all servers
    Allow(Key),
    /// Remove the override of a key: a block, an exemption or another limit
    Unblock(Key),
}

/// A key, and the server to contact.
#[derive(Debug, clap::Args)]
pub(super) struct Key {
    /// The key as responses contain it, for example `per-user|user=ann`
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
