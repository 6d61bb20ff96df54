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
    /// Remove the override of a key (a block, an exemption or another limit); prints what changed
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
            Self::Unblock(key) => return key.change_override(Method::DELETE, None),
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

    fn call(&self, method: Method, what: &str, body: Option<&Value>) -> Result<Value, String> {
        let path = format!("/v1/{what}/{}", percent_encode(&self.key));
        self.service.call(&Call { body, ..Call::new(method, &path) })
    }
}
