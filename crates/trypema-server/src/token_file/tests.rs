//! Tests which token files are reused and which are replaced.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// The runtime directory of a user's session, removed when dropped.
struct Session(PathBuf);

impl Session {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trypema-token-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    fn token(&self, port: u16) -> String {
        self.try_token(port).unwrap().token.reveal().to_owned()
    }

    fn try_token(&self, port: u16) -> Result<GeneratedToken, TokenFileError> {
        reuse_or_generate(Some(&RuntimeDirectory::OfUser(self.0.clone())), port)
    }

    fn file(&self) -> PathBuf {
        self.0.join("trypema/admin-token-1")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_token_is_kept_for_its_port() {
    let session = Session::new();
    let token = session.token(1);
    assert_eq!((token.len(), session.token(1)), (64, token.clone()), "it is used again");
    assert_ne!(session.token(2), token, "another port has another");
    let (file, folder) = (session.file(), session.0.join("trypema"));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{token}\n"));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "nothing else is left");
}

/// A file that cannot be trusted is replaced by a correct file with a new token.
#[test]
fn files_that_others_may_know_are_replaced() {
    type Spoil = fn(&Session);
    let spoilers: [(&str, Spoil); 9] = [
        ("readable for the group", |session| {
            fs::set_permissions(session.file(), Permissions::from_mode(0o640)).unwrap();
        }),
        ("readable for all", |session| {
            fs::set_permissions(session.file(), Permissions::from_mode(0o604)).unwrap();
        }),
        ("empty", |session| fs::write(session.file(), "").unwrap()),
        ("cut off", |session| fs::write(session.file(), "0123456789abcdef").unwrap()),
        ("longer", |session| fs::write(session.file(), "a".repeat(65)).unwrap()),
        ("something else", |session| fs::write(session.file(), "z".repeat(64)).unwrap()),
        ("not text", |session| fs::write(session.file(), [0xff; 64]).unwrap()),
        ("known by another name", |session| {
            fs::hard_link(session.file(), session.0.join("elsewhere")).unwrap();
        }),
        ("of another user", |session| {
            // Only root can change the owner of a file.
            if chown(session.file(), Some(65_534), None).is_err() {
                fs::write(session.file(), "").unwrap();
            }
        }),
    ];
    for (what, spoil) in spoilers {
        let session = Session::new();
        let token = session.token(1);
        spoil(&session);
        let next = session.token(1);
        assert!(next != token && next.len() == 64, "{what}");
        let status = fs::metadata(session.file()).unwrap();
        assert_eq!((status.mode() & 0o777, status.uid()), (0o600, geteuid().as_raw()), "{what}");
        assert_eq!(session.token(1), next, "{what}");
    }
}

#[test]
fn links_are_replaced_and_not_followed() {
    let session = Session::new();
    let token = session.token(1);
    let target = session.0.join("target");
    fs::rename(session.file(), &target).unwrap();
    symlink(&target, session.file()).unwrap();
    assert_ne!(session.token(1), token, "not even to a token");
    assert!(fs::symlink_metadata(session.file()).unwrap().is_file());
    assert_eq!(fs::read_to_string(&target).unwrap().trim(), token, "and it is not written through");
}

#[test]
fn a_pipe_is_not_waited_for() {
    let session = Session::new();
    session.token(1);
    fs::remove_file(session.file()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(session.file()).status().unwrap();
    assert!(made.success());
    assert_eq!(session.token(1).len(), 64);
}

#[test]
fn directories_that_others_may_change_are_refused() {
    let refusal = |session: &Session| session.try_token(1).unwrap_err().to_string();
    for mode in [0o770, 0o707, 0o777] {
        let session = Session::new();
        session.token(1);
        fs::set_permissions(session.0.join("trypema"), Permissions::from_mode(mode)).unwrap();
        assert!(refusal(&session).contains("others may write to it"), "{mode:o}");
    }
    let session = Session::new();
    session.token(1);
    if chown(session.0.join("trypema"), Some(65_534), None).is_ok() {
        assert!(refusal(&session).contains("belongs to another user"));
    }
    let session = Session::new();
    fs::write(session.0.join("trypema"), "").unwrap();
    assert!(refusal(&session).contains("trypema: Not a directory"));
    let session = Session::new();
    fs::create_dir_all(session.file()).unwrap();
    fs::set_permissions(session.0.join("trypema"), Permissions::from_mode(0o700)).unwrap();
    assert!(refusal(&session).contains("admin-token-1: "), "a directory in place of the file");
    let none = reuse_or_generate(Some(&RuntimeDirectory::OfUser("/nowhere".into())), 1);
    assert!(none.unwrap_err().to_string().starts_with("/nowhere/trypema: "));
    assert!(matches!(reuse_or_generate(None, 1), Err(TokenFileError::NoDirectory)));
}

#[test]
fn a_directory_of_our_own_is_used_as_it_is() {
    let session = Session::new();
    let own = RuntimeDirectory::Own(session.0.clone());
    let generated = reuse_or_generate(Some(&own), 7).unwrap();
    assert_eq!(generated.path, session.0.join("admin-token-7"));
}
