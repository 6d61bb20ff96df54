//! A database with its tables, and services that have their rules there.

use std::process::Command;

use serde_json::{Value, json};
use trypema_testkit::postgres;
use trypema_testkit::redis::FaultProxy;

use crate::client::Reply;
use crate::harness::{Service, trypema};

/// A database with its tables.
pub struct Scene {
    pub database: postgres::Server,
}

impl Scene {
    pub fn start() -> Self {
        let scene = Self { database: postgres::Server::start().unwrap() };
        let mut migrate = trypema();
        run(migrate.args(["rules", "migrate", "--database-url", &scene.database.url()]));
        scene
    }

    /// Where it is reached through a proxy.
    pub fn url_through(&self, proxy: &FaultProxy) -> String {
        self.database.url().replace(&self.database.addr().to_string(), &proxy.addr().to_string())
    }

    /// A service that has its rules there, with these flags besides.
    pub fn service(&self, flags: &[&str]) -> Service {
        let url = self.database.url();
        let flags: Vec<&str> = ["--database-url", &url].into_iter().chain(flags.iter().copied()).collect();
        Service::start(&flags)
    }
}

/// Runs a command that has to succeed; what it prints.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One request of a client that may do everything, for whatever revision there is.
pub fn send(service: &Service, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    service.client().send(method, path, &[("if-match", "*")], &body)
}

/// The same, where it has to succeed.
pub fn done(service: &Service, method: &str, path: &str, body: &Value) -> Value {
    let reply = send(service, method, path, body);
    assert!((200..300).contains(&reply.status), "{method} {path}: {reply:?}");
    reply.json()
}

/// A rule for each user, in JSON. Windows begin at the same moment for everybody: no test is likely to see one end.
pub fn per_user(id: &str, limit: u64) -> Value {
    json!({"id": id, "scope": "user", "strategy": {"fixed_window": {"limit": limit, "window": "300d"}}})
}

/// Whether a request of this user may go ahead.
pub fn is_allowed(service: &Service, user: &str) -> bool {
    let question = json!({"attributes": {"user": user}});
    service.post("/v1/check", &question.to_string()).json()["allowed"] == json!(true)
}
