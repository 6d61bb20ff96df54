//! nginx and Caddy with the samples of `deploy/`, between a client and the application.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use trypema_testkit::program::{FreePort, Program};
use trypema_testkit::redis::wait_until;

use crate::application::Application;
use crate::client::{Client, Reply};
use crate::harness::Service;
use crate::text_of;

/// What a sample is around: nginx reads it inside of `http`. One process, so that none is left when it is killed, and every path below
/// the test's own directory.
const NGINX: &str = "
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    include /etc/nginx/mime.types;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include trypema.conf;
}
";

/// Options that keep Caddy from touching anything but the test's own directory and port.
const CADDY: &str = "admin off\n\tauto_https off\n\tskip_install_trust\n";

/// A proxy that there is a sample for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Caddy,
}

/// What the sample says of a limiter that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// As the sample is.
    Refused,
    /// With the lines that it offers.
    Passes,
}

/// A proxy before an application, and the service that it asks.
pub struct Site {
    pub service: Service,
    pub application: Application,
    address: SocketAddr,
    proxy: Program,
    _port: FreePort,
}

impl Site {
    pub fn start(kind: Kind, rules: &str) -> Self {
        Self::with_service(kind, Undecided::Refused, Service::with_rules(rules, &[]))
    }

    pub fn with_service(kind: Kind, undecided: Undecided, service: Service) -> Self {
        let application = Application::start();
        let port = FreePort::any().unwrap();
        let addresses =
            Addresses { port: port.number(), trypema: service.address, application: application.address };
        let proxy = Program::start(|directory| match kind {
            Kind::Nginx => nginx(directory, undecided, &addresses),
            Kind::Caddy => caddy(directory, undecided, &addresses),
        });
        let proxy = proxy.unwrap_or_else(|error| panic!("{error}: `cargo xtask test` installs it"));
        let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
        let is_up = wait_until("the proxy to listen", || TcpStream::connect(address).is_ok());
        is_up.unwrap_or_else(|error| panic!("{error}:\n{}", proxy.log()));
        Self { service, application, address, proxy, _port: port }
    }

    /// A new connection to the proxy.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub fn get(&self, path: &str) -> Reply {
        self.client().send("GET", path, &[], "")
    }

    /// What the proxy has logged.
    pub fn log(&self) -> String {
        self.proxy.log()
    }
}

struct Addresses {
    port: u16,
    trypema: SocketAddr,
    application: SocketAddr,
}

fn nginx(directory: &Path, undecided: Undecided, addresses: &Addresses) -> Command {
    let mut sample = sample("nginx/trypema.conf", undecided);
    for (default, here) in [
        ("listen 8000;", format!("listen 127.0.0.1:{};", addresses.port)),
        ("server 127.0.0.1:8080;", format!("server {};", addresses.trypema)),
        ("server 127.0.0.1:9000;", format!("server {};", addresses.application)),
    ] {
        assert_eq!(sample.matches(default).count(), 1, "{default}");
        sample = sample.replace(default, &here);
    }
    fs::write(directory.join("nginx.conf"), NGINX).unwrap();
    fs::write(directory.join("trypema.conf"), sample).unwrap();
    let mut command = Command::new("nginx");
    // Debian has it where only root looks for programs.
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin");
    command.arg("-p").arg(directory).args(["-e", "stderr", "-c", "nginx.conf"]);
    command
}

fn caddy(directory: &Path, undecided: Undecided, addresses: &Addresses) -> Command {
    let sample = sample("caddy/Caddyfile", undecided);
    let options = "{\n\tservers {";
    assert_eq!(sample.matches(options).count(), 1);
    let sample = sample.replace(options, &format!("{{\n\t{CADDY}\tservers {{"));
    fs::write(directory.join("Caddyfile"), sample).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
    command.env("HOME", directory).env("XDG_DATA_HOME", directory).env("XDG_CONFIG_HOME", directory);
    command.env("LISTEN", format!(":{}", addresses.port));
    command.env("TRYPEMA", addresses.trypema.to_string());
    command.env("APPLICATION", addresses.application.to_string());
    command
}

/// A sample, with or without the lines that it offers: those after a `#` without a space.
fn sample(name: &str, undecided: Undecided) -> String {
    let text = text_of(name);
    if undecided == Undecided::Refused {
        return text;
    }
    let chosen = |line: &str| {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let offered = rest.strip_prefix('#').filter(|offered| offered.starts_with(|first| first != ' '));
        offered.map_or_else(|| line.to_owned(), |offered| format!("{indent}{offered}"))
    };
    text.lines().map(|line| chosen(line) + "\n").collect()
}
