//! Who is asked, and how.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::client::Client;
use super::place::Place;
use super::process::Server;
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

    /// The question of one user, as long for every user.
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

    /// A server that has answered.
    pub fn start(self, workload: &Workload, place: &Place) -> Result<Server, String> {
        let rules = place.file("rules.yaml", &workload.rules_file())?;
        let is_ready = |client: &mut Client| self.ask(workload, client, HOT_USER).is_ok();
        Server::start(|address| self.command(workload, place, (address, &rules)), is_ready)
    }

    fn command(self, workload: &Workload, place: &Place, (address, rules): (SocketAddr, &Path)) -> Command {
        match self {
            Self::Floor => {
                let mut floor = Command::new(std::env::current_exe().expect("this program"));
                floor.args(["floor", &address.to_string(), &workload.rules.to_string()]);
                floor
            }
            Self::Throttlecrab => {
                let mut server = Command::new(&place.throttlecrab);
                server.args(["--http", "--http-host", &address.ip().to_string()]);
                server.args(["--http-port", &address.port().to_string(), "--log-level", "error"]);
                server
            }
            Self::Ours => {
                let mut server = Command::new(&place.ours);
                server.args(["serve", "--listen", &address.to_string(), "--provider", "memory"]);
                server.args(["--log-level", "error"]).arg("--rules").arg(rules);
                server
            }
        }
    }

    /// Asks for one user.
    pub fn ask(self, workload: &Workload, client: &mut Client, user: u64) -> Result<Answer, String> {
        let text = client.post(self.path(), &self.body(workload, &keys::name(user)));
        let text = text.map_err(|error| error.to_string())?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let is_allowed = json["allowed"].as_bool().ok_or_else(|| format!("neither yes nor no: {text}"))?;
        Ok(Answer { is_allowed, bytes: text.len() })
    }

    /// Fails unless the server now answers as the column says it does.
    pub fn check(self, workload: &Workload, server: &Server) -> Result<Answer, String> {
        let answer = self.ask(workload, &mut server.client(), HOT_USER)?;
        // The floor decides nothing.
        if self != Self::Floor && answer.is_allowed != workload.is_allowed {
            return Err(format!("{}: {}: the answer is the other one", self.name(), workload.title));
        }
        Ok(answer)
    }
}

pub struct Answer {
    pub is_allowed: bool,
    /// Of the body.
    pub bytes: usize,
}
