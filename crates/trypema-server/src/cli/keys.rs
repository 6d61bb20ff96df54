//! `trypema keys`: shows, resets and overrides single keys, and releases their reservations.

use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::confirm::{print_done, print_unchanged};
use super::difference::difference;
use super::service::{AdminService, Call, percent_encode};
use super::{failed, print};

/// Work with single keys
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Show the remaining units of a key, and the reservations that hold units
    Show(Key),
    /// Release a reservation of a key: give back its units at this counter, and nowhere else
    Release(ReleaseHolder),
    /// Reset a key: forget its spent units
    Reset(Key),
    /// Block a key: deny all of its requests, on all servers; prints what changed
    Block(Key),
    /// Allow a key: exempt it from its rule, on all servers; prints what changed
    Allow(Key),
    /// End the block of a key by its abuse rule, and remove its override (a block, an exemption or another limit);
    /// prints what changed
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

/// A reservation of a key, and the server to contact.
#[derive(Debug, clap::Args)]
pub(super) struct ReleaseHolder {
    /// The key as responses contain it, for example `uploads|user=ann`
    key: String,
    /// The id of the reservation: 32 hexadecimal digits, as `trypema keys show` prints them
    id: String,
    #[command(flatten)]
    service: AdminService,
}

impl Keys {
    pub(super) fn run(self) -> ExitCode {
        let done = match &self {
            Self::Show(key) => key.print_response(Method::GET),
            Self::Release(release) => release.run(),
            Self::Reset(key) => key.print_response(Method::DELETE),
            Self::Block(key) => key.change_override(Method::PUT, Some(&json!({"verdict": "block"}))),
            Self::Allow(key) => key.change_override(Method::PUT, Some(&json!({"verdict": "allow"}))),
            Self::Unblock(key) => key.unblock(),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                failed(error);
                ExitCode::FAILURE
            }
        }
    }
}

impl ReleaseHolder {
    /// Releases the reservation. Fails if the key does not hold it.
    fn run(&self) -> Result<(), String> {
        let (key, id) = (percent_encode(&self.key), percent_encode(&self.id));
        let path = format!("/v1/keys/{key}/reservations/{id}");
        let response = self.service.call(&Call::new(Method::DELETE, &path))?;
        if response["released"] != json!(true) {
            return Err(format!(
                "{} has no such reservation: it expired, or was settled or released; `trypema keys show` lists \
                 those that it has",
                self.key
            ));
        }
        print(&format!("{response:#}\n"));
        Ok(())
    }
}

impl Key {
    fn print_response(&self, method: Method) -> Result<(), String> {
        let response = self.call(method, "keys", None)?;
        print(&format!("{response:#}\n"));
        Ok(())
    }

    /// Changes the override of the key, and prints the changes that the server made.
    fn change_override(&self, method: Method, body: Option<&Value>) -> Result<(), String> {
        let response = self.call(method, "overrides", body)?;
        let changes: Vec<&Value> = response["changes"].as_array().into_iter().flatten().collect();
        if changes.is_empty() {
            print_unchanged(response["revision"].as_u64());
            return Ok(());
        }
        changes.iter().for_each(|change| print(&difference(change)));
        print_done(changes.len(), &response);
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
