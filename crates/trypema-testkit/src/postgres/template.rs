//! The data directory of a new server, created once per machine and copied for each server.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::account::Account;
use super::programs::{Programs, output};
use crate::redis::{Directory, Error, Result};

/// The superuser, who can only log in through the Unix socket.
pub(super) const SUPERUSER: &str = "postgres";
/// The role, and the database that it owns.
pub(super) const ROLE: &str = "trypema";
/// The initial password of the role.
pub(super) const PASSWORD: &str = "open-sesame";
/// The version of the template. Raise it when the template changes; older templates stay in the temporary
/// directory.
const EDITION: u32 = 1;
/// The content of `pg_hba.conf`. Only the socket's owner and root can open the socket.
const LOGINS: &str = "\
local all postgres trust
host all all 127.0.0.1/32 scram-sha-256
";
/// The options of `initdb`. Without a locale, texts are sorted alike on every machine; small segments are
/// copied faster.
const INITDB: [&str; 6] =
    ["--no-sync", "--locale=C", "--encoding=UTF8", "--auth=trust", "--wal-segsize=1", "--username"];
/// The options of single-user mode, which executes its input, one statement per line, and ends.
const SINGLE: [&str; 5] = ["--single", "-c", "fsync=off", "-c", "password_encryption=scram-sha-256"];
/// The database in which the statements run. Besides the role's database it is the only one that stays, for
/// `CREATE DATABASE`.
const TEMPLATE_DATABASE: &str = "template1";

/// Copies the data directory of a new server to `data`, which must not exist yet.
pub(super) fn copy_to(data: &Path, programs: &Programs, account: Account) -> Result<()> {
    let template = template(programs, account)?;
    output(Command::new("cp").arg("-a").arg(template).arg(data)).map(drop)
}

/// Returns the template of this version and account, and creates it if it is missing.
fn template(programs: &Programs, account: Account) -> Result<PathBuf> {
    let name = format!("trypema-postgres-{}-{}-{EDITION}", programs.version()?, account.uid());
    let template = env::temp_dir().join(&name);
    if is_complete(&template) {
        return Ok(template);
    }
    let failed = || Error::during(format!("making {}", template.display()));
    // One of the processes that need the template creates it; the others wait for the lock.
    let lock = File::create(env::temp_dir().join(format!("{name}.lock"))).map_err(failed())?;
    lock.lock().map_err(failed())?;
    if !is_complete(&template) {
        let partial = Directory::create()?;
        account.own(partial.path())?;
        let data = partial.path().join("data");
        make(&data, programs, account)?;
        // A cleaner of the temporary directory may have removed a part of an older template.
        let _ = fs::remove_dir_all(&template);
        fs::rename(data, &template).map_err(failed())?;
    }
    Ok(template)
}

fn is_complete(template: &Path) -> bool {
    ["PG_VERSION", "global/pg_control", "pg_hba.conf"].iter().all(|file| template.join(file).is_file())
}

fn make(data: &Path, programs: &Programs, account: Account) -> Result<()> {
    let mut initdb = programs.command("initdb");
    initdb.args(INITDB).arg(SUPERUSER).arg("--pgdata").arg(data);
    output(account.run(&mut initdb))?;
    create_role(data, programs, account)?;
    fs::write(data.join("pg_hba.conf"), LOGINS).map_err(Error::during("writing who may log in"))
}

fn create_role(data: &Path, programs: &Programs, account: Account) -> Result<()> {
    let failed = || Error::during("creating the role");
    let mut single = programs.command("postgres");
    single.args(SINGLE).arg("-D").arg(data).arg(TEMPLATE_DATABASE);
    single.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut single = account.run(&mut single).spawn().map_err(failed())?;
    if let Some(mut input) = single.stdin.take() {
        input.write_all(statements().as_bytes()).map_err(failed())?;
    }
    let output = single.wait_with_output().map_err(failed())?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Single-user mode continues after an error, and exits successfully.
    if !output.status.success() || said.contains("ERROR") {
        return Err(Error::new(format!("creating the role: {said}")));
    }
    Ok(())
}

/// Returns the statements. Each database has three hundred files to copy, so an existing one is renamed,
/// and another one is dropped.
fn statements() -> String {
    format!(
        "CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'
ALTER DATABASE postgres RENAME TO {ROLE}
ALTER DATABASE {ROLE} OWNER TO {ROLE}
UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'
DROP DATABASE template0
"
    )
}
