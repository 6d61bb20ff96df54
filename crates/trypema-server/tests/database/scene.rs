//! A database with its tables, and servers that store their rules there.

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

    /// Returns the database URL through a proxy.
    pub fn url_through(&self, proxy: &FaultProxy) -> String {
        self.database.url().replace(&self.database.addr().to_string(), &proxy.addr().to_string())
    }

    /// Starts a server that stores its rules in this database, with further flags.
    pub fn service(&self, flags: &[&str]) -> Service {
        let url = self.database.url();
        let flags: Vec<&str> = ["--database-url", &url].into_iter().chain(flags.iter().copied()).collect();
        Service::start(&flags)
    }
}

/// Runs a command, which must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sends one request with the admin token and `If-Match: *`.
pub fn send(service: &Service, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    service.client().send(method, path, &[("if-match", "*")], &body)
}

/// Sends one request with the admin token and `If-Match: *`, which must succeed, and returns the body.
pub fn done(service: &Service, method: &str, path: &str, body: &Value) -> Value {
    let reply = send(service, method, path, body);
    assert!((200..300).contains(&reply.status), "{method} {path}: {reply:?}");
    reply.json()
}

/// Returns a rule per user, in JSON. Windows are aligned and long, so a test is unlikely to see one end.
pub fn per_user(id: &str, limit: u64) -> Value {
    json!({"id": id, "scope": "user", "strategy": {"fixed_window": {"limit": limit, "window": "300d"}}})
}

/// Sends a check for this user and returns whether it is allowed.
pub fn is_allowed(service: &Service, user: &str) -> bool {
    let question = json!({"attributes": {"user": user}});
    service.post("/v1/check", &question.to_string()).json()["allowed"] == json!(true)
}
