//! A PostgreSQL server with rules, and servers that follow it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use trypema_testkit::postgres;

use super::rules;
use crate::server::client::{ADMIN_TOKEN, Client};
use crate::server::process::{Program, Server, admin_address};

/// The statement of a change made with SQL.
pub const CHANGE: &str = "UPDATE rate_limit_rules SET limit_count = limit_count + 1 WHERE id = 'all'";
/// Far longer than any change takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval at which a server is polled for the revision that it has in force.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// Logs the duration of the server's own statements, without their parameters.
const LOG_STATEMENTS: &str = "
    ALTER ROLE trypema SET log_min_duration_statement = 0;
    ALTER ROLE trypema SET log_parameter_max_length = 0";

pub struct Scene {
    pub database: postgres::Server,
    program: PathBuf,
}

/// A committed change.
pub struct Change {
    revision: u64,
    committed: SystemTime,
}

impl Scene {
    /// Starts a database with its tables and without rules.
    pub fn start(program: PathBuf) -> Result<Self, String> {
        let database = postgres::Server::start().map_err(|error| error.to_string())?;
        let mut migrate = Command::new(&program);
        let migrated = migrate.args(["rules", "migrate", "--database-url", &database.url()]).output();
        match migrated.map_err(|error| error.to_string())? {
            output if output.status.success() => Ok(Self { database, program }),
            output => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Starts a server and returns when it has answered a check.
    pub fn server(&self) -> Result<Server, String> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--provider", "memory", "--log-level", "error", "--database-url"]);
        command.arg(self.database.url());
        command.args(["--admin-token", ADMIN_TOKEN]);
        let listening =
            |at: SocketAddr| vec![format!("--listen={at}"), format!("--admin-listen={}", admin_address(at))];
        let program = Program { command, listening };
        Server::start(program, |client| client.post("/v1/check", rules::QUESTION).is_ok())
    }

    /// Changes one rule with SQL.
    pub fn change_by_hand(&self) -> Result<Change, String> {
        let script =
            format!("{CHANGE}; SELECT revision, extract(epoch FROM clock_timestamp()) FROM rate_limit_state");
        let row = self.sql(&script)?;
        let (revision, seconds) = row.split_once('|').ok_or("no revision")?;
        let seconds = Duration::from_secs_f64(seconds.parse().map_err(|_| "no time")?);
        let revision = revision.parse().map_err(|_| "no revision")?;
        Ok(Change { revision, committed: SystemTime::UNIX_EPOCH + seconds })
    }

    /// Makes the database log the duration of the statements of all sessions that start from now on.
    pub fn log_statements(&self) -> Result<(), String> {
        self.sql(LOG_STATEMENTS).map(drop)
    }

    /// Returns the total milliseconds of the statements that were logged after the first `seen` bytes.
    pub fn logged_ms(&self, seen: usize) -> f64 {
        let log = self.database.log();
        let told = log.get(seen..).unwrap_or_default().split("duration: ").skip(1);
        told.filter_map(|text| text.split_once(" ms")?.0.parse::<f64>().ok()).sum()
    }

    fn sql(&self, script: &str) -> Result<String, String> {
        self.database.sql(script).map_err(|error| error.to_string())
    }
}

impl Change {
    /// Waits until a server has the change in force, and returns the time since the commit.
    pub fn until_in_force(&self, server: &Server) -> Result<Duration, String> {
        wait_for(server, self.revision)?;
        self.committed.elapsed().map_err(|error| error.to_string())
    }
}

/// Changes one rule through a server and returns the revision of the change.
pub fn change_through(server: &Server, edition: u64) -> Result<u64, String> {
    let rule = rules::changed(edition).to_string();
    server.admin_client().put("/v1/rules/all", &rule).map_err(|error| error.to_string())?;
    revision(&mut server.client())
}

/// Waits until a server has this revision in force.
pub fn wait_for(server: &Server, wanted: u64) -> Result<(), String> {
    let (mut client, deadline) = (server.client(), Instant::now() + PATIENCE);
    while revision(&mut client)? < wanted {
        if Instant::now() > deadline {
            return Err(format!("revision {wanted} is not in force after {PATIENCE:?}"));
        }
        thread::sleep(POLL_EVERY);
    }
    Ok(())
}

/// Returns the revision that a server has in force.
fn revision(client: &mut Client) -> Result<u64, String> {
    let text = client.get("/readyz").map_err(|error| error.to_string())?;
    let readiness: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    readiness["rules_revision"].as_u64().ok_or_else(|| format!("no revision: {text}"))
}
