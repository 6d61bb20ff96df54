//! Several servers behind one proxy, restarted one after the other.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use trypema_testkit::program::Program;

use crate::application::Application;
use crate::client::Client;
use crate::harness::{Service, trypema};
use crate::proxy::{CADDY, Kind, Proxy, replace_once, run_caddy, run_nginx};
use crate::text_of;

/// A limit that no test reaches.
const RULES: &str = "
rules:
  - {id: per-address, scope: ip, strategy: {absolute: {limit: 1000000, window: 1h}}}
";
/// Requests after each step: nginx and Caddy ask the servers in turn, or at random.
const REQUESTS: usize = 50;

with_each_proxy! {
    servers_that_restart_one_after_the_other_are_not_noticed
}

/// Each server is away for a moment, and back before the next one goes. A proxy that still avoids the first one,
/// because it was away, has no server left.
fn servers_that_restart_one_after_the_other_are_not_noticed(kind: Kind) {
    let services = [(); 2].map(|()| Service::with_rules(RULES, &[]));
    let addresses = services.each_ref().map(|service| service.address);
    let application = Application::start();
    let proxy = Proxy::start(|directory, port| match kind {
        Kind::Nginx => nginx(directory, port, addresses, application.address),
        Kind::Caddy => caddy(directory, port, addresses, application.address),
    });
    let mut client = Client::connect(proxy.address);
    let mut pass = |when: &str| {
        for _ in 0..REQUESTS {
            let reply = client.send("GET", "/", &[], "");
            assert_eq!(reply.status, 200, "{when}: {reply:?}\n{}", proxy.log());
        }
    };
    pass("with both servers");
    let mut restarted = Vec::new();
    for (number, mut service) in services.into_iter().enumerate() {
        service.program.signal("KILL").unwrap();
        service.program.end().unwrap();
        pass(&format!("without server {number}"));
        restarted.push(start_again(&service));
        pass(&format!("after server {number} is back"));
        restarted.push(service.program);
    }
}

/// Starts a server again at the same address.
fn start_again(service: &Service) -> Program {
    let mut again = Program::start(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", &service.address.to_string(), "--rules"]);
        command.arg(service.rules_file());
        command
    })
    .unwrap();
    again.line("listens on").unwrap();
    again
}

/// Returns a command that runs the sample with one `server` line for each address, as its comment says.
fn nginx(directory: &Path, port: u16, addresses: [SocketAddr; 2], application: SocketAddr) -> Command {
    let mut sample = text_of("nginx/trypema.conf");
    replace_once(&mut sample, "listen 8000;", &format!("listen 127.0.0.1:{port};"));
    replace_once(&mut sample, "server 127.0.0.1:9000;", &format!("server {application};"));
    fs::create_dir(directory.join("snippets")).unwrap();
    for name in ["trypema-answers.conf", "trypema-ask.conf", "trypema-http.conf", "trypema-limit.conf"] {
        let mut snippet = text_of(&format!("nginx/snippets/{name}"));
        if name == "trypema-http.conf" {
            let line =
                snippet.lines().find(|line| line.contains("server 127.0.0.1:8080")).unwrap().to_owned();
            let lines = addresses.map(|address| line.replace("127.0.0.1:8080", &address.to_string()));
            replace_once(&mut snippet, &line, &lines.join("\n"));
        }
        fs::write(directory.join("snippets").join(name), snippet).unwrap();
    }
    run_nginx(directory, &sample)
}

/// Returns a command that runs the sample with both addresses in its variable, as its comment says.
fn caddy(directory: &Path, port: u16, addresses: [SocketAddr; 2], application: SocketAddr) -> Command {
    let mut sample = text_of("caddy/Caddyfile");
    replace_once(&mut sample, "{\n\tservers {", &format!("{{\n\t{CADDY}\tservers {{"));
    fs::write(directory.join("trypema.caddy"), text_of("caddy/trypema.caddy")).unwrap();
    let mut command = run_caddy(directory, &sample);
    command.env("LISTEN", format!(":{port}"));
    command.env("TRYPEMA", addresses.map(|address| address.to_string()).join(" "));
    command.env("APPLICATION", application.to_string());
    command
}
