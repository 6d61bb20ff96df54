//! The settings with which a server is started.

use std::fs;
use std::sync::Mutex;

use super::directory::Directory;
use super::port::Port;
use super::{Binary, Error, Result, Server};

/// The number of attempts to start. Another program may take the port between its choice and its use; three
/// times in a row is practically impossible.
const ATTEMPTS: usize = 3;
/// The message that Redis logs when its port is taken.
const PORT_TAKEN: &str = "Address already in use";
/// The default settings: no persistence, and replicas that synchronise without delay.
const DEFAULTS: &str = "\
save \"\"
repl-diskless-sync yes
repl-diskless-sync-delay 0
";

/// A builder of a [`Server`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is started before `start`"]
pub struct ServerBuilder {
    binary: Option<Binary>,
    port: Option<u16>,
    password: Option<String>,
    lines: String,
    is_sentinel: bool,
}

impl ServerBuilder {
    /// Sets the program; the default is [`Binary::redis`].
    pub fn binary(mut self, binary: Binary) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Adds a line of `redis.conf`: `set("maxmemory", "2mb")`. The caller quotes the value if necessary.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.lines.push_str(&format!("{name} {value}\n"));
        self
    }

    /// Requires this password from every client. [`Server::url`] and [`Server::control`] provide it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.set("requirepass", password)
    }

    /// Adds a user, as in an ACL file without the word `user`: `limiter on >secret ~* +@all -script`.
    pub fn user(self, rules: &str) -> Self {
        self.set("user", rules)
    }

    /// Sets the port instead of choosing a free one. The start fails if it is taken.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts a sentinel instead of a data server.
    pub(crate) fn sentinel(mut self) -> Self {
        self.is_sentinel = true;
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<Server> {
        let mut outcome = self.start_once();
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(error) if self.port.is_none() && error.to_string().contains(PORT_TAKEN) => {
                    outcome = self.start_once();
                }
                _ => break,
            }
        }
        outcome
    }

    fn start_once(&self) -> Result<Server> {
        let port = self.port.map_or_else(Port::any, Port::exactly)?;
        let binary = self.binary.clone().map_or_else(Binary::redis, Ok)?;
        let directory = Directory::create()?;
        let defaults = if self.is_sentinel { "" } else { DEFAULTS };
        let settings = format!("bind 127.0.0.1\nport {}\n{defaults}{}", port.number(), self.lines);
        let server = Server {
            process: Mutex::new(None),
            arguments: if self.is_sentinel { vec!["--sentinel"] } else { vec![] },
            password: self.password.clone(),
            binary,
            directory,
            port,
        };
        fs::write(server.settings(), settings).map_err(Error::during("writing the server's settings"))?;
        server.restart()?;
        Ok(server)
    }
}
