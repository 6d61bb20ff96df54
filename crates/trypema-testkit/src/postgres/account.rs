//! The user account that runs a server.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::redis::{Error, Result};

const ROOT: u32 = 0;
/// The user that Debian's package creates.
const STAND_IN: &str = "postgres";

/// The account that runs a server: that of the tests, or the user `postgres` if the tests run as root,
/// because PostgreSQL refuses to run as root.
#[derive(Debug, Clone, Copy)]
pub(super) enum Account {
    Own { uid: u32 },
    StandIn { uid: u32, gid: u32 },
}

impl Account {
    /// Finds the account by the owner of a directory that this process has created.
    pub(super) fn find(created: &Path) -> Result<Self> {
        let metadata =
            fs::metadata(created).map_err(Error::during("looking for the owner of a directory"))?;
        match metadata.uid() {
            ROOT => {
                let accounts =
                    fs::read_to_string("/etc/passwd").map_err(Error::during("reading /etc/passwd"))?;
                let found = accounts.lines().find_map(stand_in);
                found.ok_or_else(|| {
                    Error::new(format!("PostgreSQL does not run as root, and there is no user {STAND_IN}"))
                })
            }
            uid => Ok(Self::Own { uid }),
        }
    }

    pub(super) fn uid(self) -> u32 {
        let (Self::Own { uid } | Self::StandIn { uid, .. }) = self;
        uid
    }

    /// Makes the account the owner of a path that this process has created.
    pub(super) fn own(self, path: &Path) -> Result<()> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::StandIn { uid, gid } => {
                chown(path, Some(uid), Some(gid)).map_err(Error::during("giving a directory away"))
            }
        }
    }

    /// Makes the command run under the account.
    pub(super) fn run(self, command: &mut Command) -> &mut Command {
        match self {
            Self::Own { .. } => command,
            Self::StandIn { uid, gid } => command.uid(uid).gid(gid),
        }
    }
}

/// Parses a line of `/etc/passwd` (name, password, user, group, …). Returns the account if the line is that
/// of [`STAND_IN`].
fn stand_in(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let is_named = fields.next() == Some(STAND_IN);
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    is_named.then_some(Account::StandIn { uid, gid })
}
