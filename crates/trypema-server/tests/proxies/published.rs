//! The check listener behind proxies that forward every request: no request reaches the admin API.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::THREE_PER_ADDRESS;
use crate::client::{Client, Reply};
use crate::harness::Service;
use crate::proxy::{CADDY, Proxy, run_caddy, run_nginx};

/// A proxy with the shortest configuration that publishes a server.
#[derive(Debug, Clone, Copy)]
enum Publisher {
    Nginx,
    Caddy,
    HaProxy,
}

mod nginx {
    #[test]
    fn publishes_checks_and_not_administration() {
        super::publishes_checks_and_not_administration(super::Publisher::Nginx);
    }
}
mod caddy {
    #[test]
    fn publishes_checks_and_not_administration() {
        super::publishes_checks_and_not_administration(super::Publisher::Caddy);
    }
}
mod haproxy {
    #[test]
    fn publishes_checks_and_not_administration() {
        super::publishes_checks_and_not_administration(super::Publisher::HaProxy);
    }
}

impl Publisher {
    fn start(self, service: SocketAddr) -> Proxy {
        Proxy::start(|directory, port| match self {
            Self::Nginx => {
                let location = format!("location / {{ proxy_pass http://{service}; }}");
                run_nginx(directory, &format!("server {{ listen 127.0.0.1:{port}; {location} }}"))
            }
            Self::Caddy => {
                run_caddy(directory, &format!("{{\n\t{CADDY}}}\n:{port} {{\n\treverse_proxy {service}\n}}\n"))
            }
            Self::HaProxy => haproxy(directory, port, service),
        })
    }
}

/// Returns a command that runs HAProxy in TCP mode, in which it adds nothing that distinguishes its clients
/// from local ones.
fn haproxy(directory: &Path, port: u16, service: SocketAddr) -> Command {
    let timeouts = "timeout connect 5s\n    timeout client 30s\n    timeout server 30s";
    let listen = format!("bind 127.0.0.1:{port}\n    server trypema {service}");
    let file = format!("defaults\n    mode tcp\n    {timeouts}\nlisten trypema\n    {listen}\n");
    fs::write(directory.join("haproxy.cfg"), file).unwrap();
    let mut command = Command::new("haproxy");
    // On Debian it is in `/usr/sbin`, which is only in root's `PATH`.
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin");
    // In the foreground, as one process.
    command.args(["-db", "-f", "haproxy.cfg"]).current_dir(directory);
    command
}

const KEY: &str = "/v1/keys/per-address%7Cip=203.0.113.9";

/// Admin requests, with every spelling of their paths that a proxy might forward.
const ADMIN: [(&str, &str, &str); 20] = [
    ("DELETE", KEY, ""),
    ("GET", KEY, ""),
    ("DELETE", "/v1/keys/per-address|ip=203.0.113.9", ""),
    ("DELETE", "/v1//keys/per-address%7Cip=203.0.113.9", ""),
    ("DELETE", "/v1/./keys/per-address%7Cip=203.0.113.9", ""),
    ("DELETE", "/v1/check/../keys/per-address%7Cip=203.0.113.9", ""),
    ("DELETE", "/v1/check/%2e%2e/keys/per-address%7Cip=203.0.113.9", ""),
    ("DELETE", "/v1/%6beys/per-address%7Cip=203.0.113.9", ""),
    ("POST", "/v1/explain", r#"{"attributes": {"ip": "203.0.113.9"}}"#),
    ("GET", "/v1/rules", ""),
    ("POST", "/v1/rules", "{}"),
    ("GET", "/v1/ruleset", ""),
    ("PUT", "/v1/ruleset", r#"{"rules": []}"#),
    ("GET", "/v1/ruleset/history", ""),
    ("POST", "/v1/ruleset/revert", r#"{"to": 0}"#),
    ("PUT", "/v1/overrides/per-address%7Cip=203.0.113.9", r#"{"verdict": "allow"}"#),
    ("PUT", "/v1/lists/allow/ip/203.0.113.9", ""),
    ("GET", "/v1/candidates", ""),
    ("GET", "/metrics", ""),
    ("GET", "/openapi.json", ""),
];

/// No token is configured, and the server listens on loopback. An earlier version answered `DELETE
/// /v1/keys/…` here.
fn publishes_checks_and_not_administration(publisher: Publisher) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &[]);
    let proxy = publisher.start(service.address);
    let mut client = Client::connect(proxy.address);
    let question = r#"{"attributes": {"ip": "203.0.113.9"}}"#;
    let checked = client.send("POST", "/v1/check", &[], question);
    assert_eq!((checked.status, &checked.json()["allowed"]), (200, &true.into()), "{checked:?}");
    assert_eq!(client.send("GET", "/healthz", &[], "").status, 200);

    // The admin token does not help the attacker.
    let token = format!("Bearer {}", service.admin.as_ref().unwrap().token.clone().unwrap());
    let admin_host = service.admin_address().to_string();
    let disguises: [&[(&str, &str)]; 4] = [
        &[],
        &[("authorization", &token)],
        &[("authorization", &token), ("x-forwarded-host", &admin_host), ("forwarded", "for=127.0.0.1")],
        &[("authorization", &token), ("x-forwarded-for", "127.0.0.1"), ("x-real-ip", "127.0.0.1")],
    ];
    for (method, path, body) in ADMIN {
        for headers in disguises {
            let refused = Client::connect(proxy.address).send(method, path, headers, body);
            assert_unreachable(&refused, &format!("{publisher:?} {method} {path} {headers:?}"));
        }
        let refused = with_host(proxy.address, (method, path), &admin_host, &token);
        assert_unreachable(&refused, &format!("{publisher:?} {method} {path} with host {admin_host}"));
    }
    for path in ["/v1/refund", "/v1/keys/per-user%7Cuser=ann/reservations/6e8f68a9b8f462567a56f5f50f41098a"] {
        let absent = client.send("DELETE", path, &[], "");
        assert_unreachable(&absent, path);
    }
    assert_eq!(service.get(KEY).json()["remaining"], 2, "spent by the check, and not forgotten since");
}

/// Asserts that the admin API was not reached. A proxy may refuse what it does not understand, or redirect to
/// a normalized path. It returns 502 if it lost the connection on which the server refused a body without
/// reading it.
fn assert_unreachable(reply: &Reply, what: &str) {
    assert!([301, 308, 400, 404, 405, 502].contains(&reply.status), "{what}: {reply:?}");
}

/// Sends a request with the admin listener as its host.
fn with_host(proxy: SocketAddr, (method, path): (&str, &str), host: &str, token: &str) -> Reply {
    let mut client = Client::connect(proxy);
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {token}\r\n\r\n");
    client.write(head.as_bytes()).unwrap();
    client.read().unwrap()
}
