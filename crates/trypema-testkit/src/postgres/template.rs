//! The data of a new server, made once for a machine and copied for each.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::account::Account;
use super::programs::{Programs, output};
use crate::redis::{Directory, Error, Result};

/// The superuser, who logs in through the socket only.
pub(super) const SUPERUSER: &str = "postgres";
/// The role, and the database it owns.
pub(super) const ROLE: &str = "trypema";
/// The password of the role until a test sets another.
pub(super) const PASSWORD: &str = "open-sesame";
/// Raised when what is made here changes: other templates stay behind in the temporary directory.
const EDITION: u32 = 1;
/// Who may come in how. The socket itself is for its owner and root only.
const LOGINS: &str = "\
local all postgres trust
host all all 127.0.0.1/32 scram-sha-256
";
/// Without locale, so that texts are sorted alike on every machine; small segments are copied sooner.
const INITDB: [&str; 6] =
    ["--no-sync", "--locale=C", "--encoding=UTF8", "--auth=trust", "--wal-segsize=1", "--username"];
/// The server that is no server: it carries out its input, a statement a line, and ends.
const SINGLE: [&str; 5] = ["--single", "-c", "fsync=off", "-c", "password_encryption=scram-sha-256"];
/// Where it does that; what is left besides the role's database, for `CREATE DATABASE`.
const TEMPLATE_DATABASE: &str = "template1";

/// Puts the data of a new server into `data`, which must not exist yet.
pub(super) fn copy_to(data: &Path, programs: &Programs, account: Account) -> Result<()> {
    let template = template(programs, account)?;
    output(Command::new("cp").arg("-a").arg(template).arg(data)).map(drop)
}

/// The template for this version and account, made now if it is not there.
fn template(programs: &Programs, account: Account) -> Result<PathBuf> {
    let name = format!("trypema-postgres-{}-{}-{EDITION}", programs.version()?, account.uid());
    let template = env::temp_dir().join(&name);
    if is_complete(&template) {
        return Ok(template);
    }
    let failed = || Error::during(format!("making {}", template.display()));
    // One of the processes that miss it makes it; the others wait here.
    let lock = File::create(env::temp_dir().join(format!("{name}.lock"))).map_err(failed())?;
    lock.lock().map_err(failed())?;
    if !is_complete(&template) {
        let partial = Directory::create()?;
        account.own(partial.path())?;
        let data = partial.path().join("data");
        make(&data, programs, account)?;
        // What a cleaner of the temporary directory has left of one.
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
    // It goes on after an error, and ends as if there had been none.
    if !output.status.success() || said.contains("ERROR") {
        return Err(Error::new(format!("creating the role: {said}")));
    }
    Ok(())
}

/// Each database is three hundred files to copy, so one that is there becomes the role's and another goes.
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
