//! Who runs a server.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::redis::{Error, Result};

const ROOT: u32 = 0;
/// Debian's package creates it.
const STAND_IN: &str = "postgres";

/// Whoever runs the tests; in the place of root, for whom PostgreSQL refuses to run, the system's user `postgres`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Account {
    Own { uid: u32 },
    StandIn { uid: u32, gid: u32 },
}

impl Account {
    /// Who it is, seen from the owner of a directory that this process has created.
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

    /// Makes it the owner of what this process has created.
    pub(super) fn own(self, path: &Path) -> Result<()> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::StandIn { uid, gid } => {
                chown(path, Some(uid), Some(gid)).map_err(Error::during("giving a directory away"))
            }
        }
    }

    /// Has the command run by it.
    pub(super) fn run(self, command: &mut Command) -> &mut Command {
        match self {
            Self::Own { .. } => command,
            Self::StandIn { uid, gid } => command.uid(uid).gid(gid),
        }
    }
}

/// The stand-in, if this line of `/etc/passwd` (name, password, user, group, …) is its own.
fn stand_in(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let is_named = fields.next() == Some(STAND_IN);
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    is_named.then_some(Account::StandIn { uid, gid })
}
