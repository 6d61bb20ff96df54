//! The generated admin token, and the file that stores it.
//!
//! There is one file per port, so that servers of one user do not share a token, and a restart reuses it.
//! The server trusts only files that no other user can have written or read. It replaces any other file,
//! and never follows a link.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdir, open, openat, renameat, unlinkat};
use rustix::process::geteuid;
use thiserror::Error;

use crate::secret::Secret;

#[cfg(test)]
mod tests;

/// The number of random bytes of a token: 256 bits cannot be guessed.
const RANDOM_BYTES: usize = 32;
/// The number of hexadecimal digits of a token.
const TOKEN_LENGTH: usize = 2 * RANDOM_BYTES;
/// The directory that systemd creates for the sample unit (`RuntimeDirectory=trypema`).
const SYSTEM_DIRECTORY: &str = "/run/trypema";

const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);
const DIRECTORY: Mode = Mode::RWXU;
const OTHERS_WRITE: Mode = Mode::WGRP.union(Mode::WOTH);
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

/// A directory that is emptied when the machine stops or the user's session ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeDirectory {
    /// `$RUNTIME_DIRECTORY`, which a service manager created for this server alone.
    Own(PathBuf),
    /// `$XDG_RUNTIME_DIR`, which all programs of a user share. The server uses its subdirectory `trypema`.
    OfUser(PathBuf),
}

/// The reason why a generated token cannot be stored.
#[derive(Debug, Error)]
pub enum TokenFileError {
    /// The environment names no directory.
    #[error("there is no directory for a generated token: set RUNTIME_DIRECTORY or XDG_RUNTIME_DIR")]
    NoDirectory,
    /// Other users could change the directory.
    #[error("{0}: belongs to another user, or others may write to it")]
    Shared(PathBuf),
    /// A file or directory cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A generated token, and the path of its file.
#[derive(Debug)]
pub(crate) struct GeneratedToken {
    pub(crate) token: Secret,
    pub(crate) path: PathBuf,
}

impl RuntimeDirectory {
    /// Returns the directory that the environment names. systemd separates several by colons; the first is
    /// used.
    pub fn from_environment() -> Option<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(directories) = set("RUNTIME_DIRECTORY") {
            let first = std::env::split_paths(&directories).next()?;
            return first.is_absolute().then_some(Self::Own(first));
        }
        let shared = PathBuf::from(set("XDG_RUNTIME_DIR")?);
        shared.is_absolute().then_some(Self::OfUser(shared))
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Own(path) => path.clone(),
            Self::OfUser(path) => path.join("trypema"),
        }
    }
}

/// Returns the token of the server on `port`: the stored one if its file can be trusted, otherwise a new
/// one.
pub(crate) fn reuse_or_generate(
    directory: Option<&RuntimeDirectory>,
    port: u16,
) -> Result<GeneratedToken, TokenFileError> {
    let directory = directory.ok_or(TokenFileError::NoDirectory)?;
    let folder = directory.path();
    if let RuntimeDirectory::OfUser(_) = directory {
        match mkdir(&folder, DIRECTORY) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(failed(&folder, error)),
        }
    }
    // All further accesses are relative to this descriptor, so the checked directory is the one that is
    // used.
    let opened = open(&folder, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let opened = File::from(opened.map_err(|error| failed(&folder, error))?);
    let status = rustix::fs::fstat(&opened).map_err(|error| failed(&folder, error))?;
    let is_ours = status.st_uid == geteuid().as_raw() || status.st_uid == 0;
    if !is_ours || Mode::from_raw_mode(status.st_mode).intersects(OTHERS_WRITE) {
        return Err(TokenFileError::Shared(folder));
    }
    let name = file_name(port);
    let path = folder.join(&name);
    let token = match read(&opened, &name, Reader::Service) {
        Some(token) => token,
        None => {
            write_new(&opened, &name).map_err(|source| TokenFileError::Io { path: path.clone(), source })?
        }
    };
    Ok(GeneratedToken { token, path })
}

/// Returns the token of a server on `port` of this machine, if the current user may read it. Clients call
/// this.
pub(crate) fn find(port: u16) -> Option<Secret> {
    let own = RuntimeDirectory::from_environment().map(|directory| directory.path());
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(|shared| Path::new(&shared).join("trypema"));
    let folders = own.into_iter().chain(user).chain([PathBuf::from(SYSTEM_DIRECTORY)]);
    folders
        .filter_map(|folder| File::open(folder).ok())
        .find_map(|folder| read(&folder, &file_name(port), Reader::Client))
}

fn file_name(port: u16) -> String {
    format!("admin-token-{port}")
}

/// The program that reads a token file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// The server trusts only files of its own user.
    Service,
    /// A client only sends the token to a server, so root may use the files of all users.
    Client,
}

/// Returns the token in a file, if no other user can have written or read it.
fn read(folder: &File, name: &str, reader: Reader) -> Option<Secret> {
    // Do not follow a link, and do not block on a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    let status = rustix::fs::fstat(&file).ok()?;
    let user = geteuid();
    let is_private = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && (status.st_uid == user.as_raw() || reader == Reader::Client && user.is_root())
        && status.st_nlink == 1
        && !Mode::from_raw_mode(status.st_mode).intersects(OTHERS);
    if !is_private {
        return None;
    }
    let mut text = String::new();
    // Read more than a token has: a longer file is not ours.
    file.take(TOKEN_LENGTH as u64 + 2).read_to_string(&mut text).ok()?;
    let token = text.trim_end_matches('\n');
    let is_token = token.len() == TOKEN_LENGTH && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_token.then(|| Secret::from(token))
}

/// Writes a new token to a temporary file, then renames it. A reader finds a complete token or none, and an
/// existing file or link is replaced, not written through.
fn write_new(folder: &File, name: &str) -> io::Result<Secret> {
    let token = random_token()?;
    let temporary = format!(".{name}.{}", std::process::id());
    // An interrupted start may have left this file.
    let _ = unlinkat(folder, &temporary, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, &temporary, flags, OWNER_ONLY)?);
    let written = file.write_all(format!("{token}\n").as_bytes());
    let moved = written.and_then(|()| Ok(renameat(folder, &temporary, folder, name)?));
    if moved.is_err() {
        let _ = unlinkat(folder, &temporary, AtFlags::empty());
    }
    moved.map(|()| Secret::from(token))
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn failed(path: &Path, error: rustix::io::Errno) -> TokenFileError {
    TokenFileError::Io { path: path.to_owned(), source: error.into() }
}
