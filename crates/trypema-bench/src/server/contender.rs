//! The servers under measurement, and the requests that each is sent.

use std::net::SocketAddr;
use std::process::Command;

use super::client::Client;
use super::place::Place;
use super::process::{Program, Server};
use super::workload::{HOT_USER, WINDOW_SECONDS, Workload};
use crate::keys;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    Floor,
    Throttlecrab,
    Ours,
}

impl Contender {
    pub const ALL: [Self; 3] = [Self::Floor, Self::Throttlecrab, Self::Ours];

    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor: axum without a limiter (F)",
            Self::Throttlecrab => "throttlecrab-server 0.4 (T)",
            Self::Ours => "ours: `trypema serve`",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Floor | Self::Ours => "/v1/check",
            Self::Throttlecrab => "/throttle",
        }
    }

    /// Returns the request body for one user. It has the same length for every user.
    pub fn body(self, workload: &Workload, user: &str) -> String {
        let limit = workload.limit();
        match self {
            Self::Floor | Self::Ours => {
                format!(r#"{{"attributes":{{"user":"{user}","endpoint":"/api/search","ip":"203.0.113.9"}}}}"#)
            }
            Self::Throttlecrab => format!(
                r#"{{"key":"{user}","max_burst":{limit},"count_per_period":{limit},"period":{WINDOW_SECONDS}}}"#
            ),
        }
    }

    /// Starts a server and returns when it has answered a request.
    pub fn start(self, workload: &Workload, place: &Place) -> Result<Server, String> {
        let program = self.program(workload, place)?;
        Server::start(program, |client| self.ask(workload, client, HOT_USER).is_ok())
    }

    /// Returns the command that starts the server, and the function that makes its listen arguments.
    fn program(self, workload: &Workload, place: &Place) -> Result<Program, String> {
        Ok(match self {
            Self::Floor => {
                let mut floor = Command::new(std::env::current_exe().expect("this program"));
                floor.args(["floor", &workload.rules.to_string()]);
                Program { command: floor, listening: |at| vec![at.to_string()] }
            }
            Self::Throttlecrab => {
                let mut server = Command::new(&place.throttlecrab);
                server.args(["--http", "--log-level", "error"]);
                let host_and_port = |at: SocketAddr| {
                    vec![format!("--http-host={}", at.ip()), format!("--http-port={}", at.port())]
                };
                Program { command: server, listening: host_and_port }
            }
            Self::Ours => {
                let mut server = Command::new(&place.ours);
                server.args([
                    "serve",
                    "--admin-listen",
                    "off",
                    "--provider",
                    "memory",
                    "--log-level",
                    "error",
                    "--rules",
                ]);
                server.arg(place.file("rules.yaml", &workload.rules_file())?);
                Program { command: server, listening: |at| vec![format!("--listen={at}")] }
            }
        })
    }

    /// Sends one request for one user.
    pub fn ask(self, workload: &Workload, client: &mut Client, user: u64) -> Result<Answer, String> {
        let text = client.post(self.path(), &self.body(workload, &keys::name(user)));
        let text = text.map_err(|error| error.to_string())?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let is_allowed = json["allowed"].as_bool().ok_or_else(|| format!("neither yes nor no: {text}"))?;
        Ok(Answer { is_allowed, bytes: text.len() })
    }

    /// Fails unless the server answers as the column requires.
    pub fn check(self, workload: &Workload, server: &Server) -> Result<Answer, String> {
        let answer = self.ask(workload, &mut server.client(), HOT_USER)?;
        // The floor does not decide.
        if self != Self::Floor && answer.is_allowed != workload.is_allowed {
            return Err(format!("{}: {}: the answer is the other one", self.name(), workload.title));
        }
        Ok(answer)
    }
}

pub struct Answer {
    pub is_allowed: bool,
    /// The length of the body.
    pub bytes: usize,
}
