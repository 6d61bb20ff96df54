//! `trypema keys`: shows, resets and overrides single keys, and releases their reservations.

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::confirm::{print_done, print_unchanged};
use super::difference::difference;
use super::service::{AdminService, Call, percent_encode};
use super::{elements, print};

/// Work with single keys
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Show the remaining units of a key, and the reservations that hold units
    Show(KeyArgs),
    /// Release a reservation of a key: give back its units at this counter, and nowhere else
    Release {
        /// The key as responses contain it, for example `uploads|user=ann`
        key: String,
        /// The id of the reservation: 32 hexadecimal digits, as `trypema keys show` prints them
        id: String,
        #[command(flatten)]
        service: AdminService,
    },
    /// Reset a key: forget its spent units
    Reset(KeyArgs),
    /// Block a key: deny all of its requests, on all servers; prints what changed
    Block(KeyArgs),
    /// Allow a key: exempt it from its rule, on all servers; prints what changed
    Allow(KeyArgs),
    /// End the block of a key by its abuse rule, and remove its override (a block, an exemption or another limit);
    /// prints what changed
    Unblock(KeyArgs),
}

/// A key, and the server to contact.
#[derive(Debug, clap::Args)]
pub(super) struct KeyArgs {
    /// The key as responses contain it, for example `per-user|user=ann`
    key: String,
    #[command(flatten)]
    service: AdminService,
}

impl Keys {
    pub(super) fn run(self) -> Result<(), String> {
        let response = match self {
            Self::Show(key) => key.call(Method::GET, "keys", None)?,
            Self::Reset(key) => key.call(Method::DELETE, "keys", None)?,
            Self::Release { key, id, service } => {
                let path = format!("/v1/keys/{}/reservations/{}", percent_encode(&key), percent_encode(&id));
                let response = service.call(&Call::new(Method::DELETE, &path))?;
                if response["released"] != json!(true) {
                    return Err(format!(
                        "{key} has no such reservation: it expired, or was settled or released; `trypema keys show` \
                         lists those that it has"
                    ));
                }
                response
            }
            Self::Block(key) => return key.change_override(Method::PUT, Some(&json!({"verdict": "block"}))),
            Self::Allow(key) => return key.change_override(Method::PUT, Some(&json!({"verdict": "allow"}))),
            Self::Unblock(key) => return key.unblock(),
        };
        print(&format!("{response:#}\n"));
        Ok(())
    }
}

impl KeyArgs {
    /// Changes the override of the key, and prints the changes that the server made.
    fn change_override(&self, method: Method, body: Option<&Value>) -> Result<(), String> {
        let response = self.call(method, "overrides", body)?;
        match elements(&response["changes"]).map(|change| print(&difference(change))).count() {
            0 => print_unchanged(response["revision"].as_u64()),
            count => print_done(count, &response),
        }
        Ok(())
    }

    /// Ends the block of an abuse rule, and removes the override. Fails if there is neither, or if the key stays
    /// blocked.
    fn unblock(&self) -> Result<(), String> {
        let ended = self.end_abuse_block();
        let removed = self.change_override(Method::DELETE, None);
        match (ended, removed) {
            (Ok(true), Err(error)) => {
                let is_blocked = self.call(Method::GET, "keys", None)?["blocked"] == json!(true);
                if is_blocked { Err(error) } else { Ok(()) }
            }
            (Ok(false), Err(error)) => Err(format!("{error}; no abuse rule blocks it, either")),
            (_, Err(error)) => Err(error),
            (ended, Ok(())) => ended.map(|_| ()),
        }
    }

    /// Ends the block of the key by its abuse rule, if there is one. The attempts that led to it are forgotten:
    /// otherwise the next one would block the key again.
    fn end_abuse_block(&self) -> Result<bool, String> {
        let counter = self.call(Method::GET, "keys", None)?;
        let (Some(rule), Some(scope)) = (counter["rule"].as_str(), counter["scope"].as_str()) else {
            return Ok(false);
        };
        self.call(Method::DELETE, "keys", None)?;
        print(&format!("- block of {} by {rule} ({scope}), with its attempts\n", self.key));
        Ok(true)
    }

    fn call(&self, method: Method, what: &str, body: Option<&Value>) -> Result<Value, String> {
        let path = format!("/v1/{what}/{}", percent_encode(&self.key));
        self.service.call(&Call { body, ..Call::new(method, &path) })
    }
}
