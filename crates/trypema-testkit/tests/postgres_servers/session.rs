//! `psql` as a client: one question, or a session that stays open.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// More than any answer takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// The rows, or what psql says is wrong.
pub(crate) fn ask(url: &str, question: &str) -> Result<String, String> {
    let output = psql(url).args(["--command", question]).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

/// One that stays open; killed when dropped.
pub(crate) struct Session {
    psql: Child,
    lines: Receiver<String>,
}

impl Session {
    pub(crate) fn open(url: &str) -> Self {
        let mut command = psql(url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut psql = command.spawn().unwrap();
        let output = BufReader::new(psql.stdout.take().unwrap());
        let (sender, lines) = channel();
        // It ends with psql.
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { psql, lines }
    }

    /// One row of one value; none if the session is over.
    pub(crate) fn ask(&mut self, question: &str) -> Option<String> {
        self.send(question);
        self.answer()
    }

    /// Writes the question; a psql whose session is over may have ended.
    pub(crate) fn send(&mut self, question: &str) {
        let _ = writeln!(self.psql.stdin.as_mut().unwrap(), "{question};");
    }

    pub(crate) fn answer(&self) -> Option<String> {
        self.answer_within(PATIENCE)
    }

    pub(crate) fn answer_within(&self, patience: Duration) -> Option<String> {
        self.lines.recv_timeout(patience).ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

fn psql(url: &str) -> Command {
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1", url]);
    psql.env("LC_ALL", "C");
    psql
}
