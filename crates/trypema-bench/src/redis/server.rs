//! The Redis server that all contenders share, and its statistics.

use tokio::runtime::{Builder, Runtime};
use trypema::redis::{script_sources, script_sources_without_quick};
use trypema_testkit::redis::{Control, FaultProxy, Rewrite, Server};

/// A runtime and a Redis server. Background work that a contender leaves behind affects only contenders in
/// the same place.
pub struct Place {
    pub runtime: Runtime,
    pub server: Watched,
}

impl Place {
    pub fn new() -> Self {
        let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
        Self { runtime, server: Watched::start() }
    }
}

/// A Redis server for this run only, with a control connection.
pub struct Watched {
    server: Server,
    control: Control,
}

/// The time that the server has spent so far, in microseconds.
#[derive(Clone, Copy)]
pub struct Spent {
    /// Processor time, including all work besides commands.
    pub cpu: f64,
    /// Time inside the commands that contenders send.
    pub commands: f64,
}

impl Watched {
    fn start() -> Self {
        let server = Server::start().expect("a Redis server");
        let control = server.control().expect("a connection to it");
        Self { server, control }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns a proxy to the server that changes nothing.
    pub fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.server.addr()).expect("a proxy")
    }

    /// Returns a proxy to the server that replaces each script by the version without its short usual case.
    pub fn proxy_without_quick(&mut self) -> FaultProxy {
        let mut digest = |source: &str| {
            let reply = self.control.command(&["SCRIPT", "LOAD", source]);
            reply.expect("a script that compiles").bytes().to_vec()
        };
        let pairs = script_sources().into_iter().zip(script_sources_without_quick());
        let rewrites =
            pairs.map(|(with, without)| Rewrite { from: digest(&with.source), to: digest(&without.source) });
        FaultProxy::rewriting(self.server.addr(), rewrites.collect()).expect("a proxy")
    }

    pub fn flush(&mut self) {
        self.control.command(&["FLUSHALL"]).expect("an empty database");
    }

    /// Returns the number of script calls so far.
    pub fn script_calls(&self) -> u64 {
        let stats = self.server.info("commandstats").expect("INFO commandstats");
        let calls = |command| {
            let number = stats.text(command).split(',').find_map(|part| part.strip_prefix("calls="));
            number.map_or(0, |number| number.parse::<u64>().expect("a count"))
        };
        ["cmdstat_evalsha", "cmdstat_eval"].into_iter().map(calls).sum()
    }

    pub fn spent(&self) -> Spent {
        let info = self.server.info("cpu").expect("INFO cpu");
        let seconds = |field| info.text(field).parse::<f64>().expect("a time");
        let cpu = (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6;
        let stats = self.server.info("commandstats").expect("INFO commandstats");
        let of_command = |command| {
            let text = stats.text(command);
            let number = text.split(',').find_map(|part| part.strip_prefix("usec="));
            number.map_or(0.0, |number| number.parse::<f64>().expect("a time"))
        };
        let commands = ["cmdstat_incr", "cmdstat_evalsha", "cmdstat_eval"].into_iter().map(of_command).sum();
        Spent { cpu, commands }
    }

    /// Returns the bytes of all keys, by `MEMORY USAGE`.
    pub fn bytes(&mut self) -> f64 {
        let keys = self.control.command(&["KEYS", "*"]).expect("the keys");
        let usage = |key: &[u8]| {
            let command: [&[u8]; 5] = [b"MEMORY", b"USAGE", key, b"SAMPLES", b"0"];
            self.control.command(&command).expect("its bytes").integer().expect("a number") as f64
        };
        keys.items().iter().map(|key| key.bytes()).map(usage).sum()
    }
}
