//! nginx and Caddy with the samples of `deploy/`, between a client and the application.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use trypema_testkit::program::{FreePort, Program};
use trypema_testkit::redis::wait_until;

use crate::application::Application;
use crate::authenticator;
use crate::client::{Client, Reply};
use crate::harness::{Service, trypema};
use crate::text_of;

/// The nginx configuration around a sample, which belongs inside `http`. nginx runs as one process, so that a
/// kill leaves none behind, and uses only paths below the test's directory.
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

/// LiteLLM needs 8 s of processor time to start: on a busy machine, some waits of 30 s.
const WAITS_FOR_START: usize = 6;

/// Options that keep Caddy from using anything but the test's own directory and port.
pub const CADDY: &str = "admin off\n\tauto_https off\n\tskip_install_trust\n";

/// A proxy with samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Caddy,
}

/// The samples of each proxy, by the key that they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    Address,
    Session,
    ApiKey,
    User,
}

impl Sample {
    /// Returns the file in `deploy/`.
    fn file(self, kind: Kind) -> &'static str {
        match (kind, self) {
            (Kind::Nginx, Self::Address) => "nginx/trypema.conf",
            (Kind::Nginx, Self::Session) => "nginx/per-session.conf",
            (Kind::Nginx, Self::ApiKey) => "nginx/per-api-key.conf",
            (Kind::Nginx, Self::User) => "nginx/per-user.conf",
            (Kind::Caddy, Self::Address) => "caddy/Caddyfile",
            (Kind::Caddy, Self::Session) => "caddy/per-session.Caddyfile",
            (Kind::Caddy, Self::ApiKey) => "caddy/per-api-key.Caddyfile",
            (Kind::Caddy, Self::User) => "caddy/per-user.Caddyfile",
        }
    }
}

/// The behaviour of the sample while the limiter is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// Requests are refused: the sample unchanged.
    Refused,
    /// Requests pass: the sample with its commented-out lines enabled.
    Passes,
}

/// A sample to start.
pub struct Setup {
    pub kind: Kind,
    pub sample: Sample,
    pub undecided: Undecided,
    pub service: Service,
    /// Texts of the sample and their replacements.
    pub edits: Vec<(&'static str, &'static str)>,
}

/// A proxy in front of an application, and the server that the proxy calls.
pub struct Site {
    pub service: Service,
    pub application: Application,
    proxy: Proxy,
}

/// A running proxy.
pub struct Proxy {
    pub address: SocketAddr,
    program: Program,
    _port: FreePort,
}

impl Proxy {
    /// Starts the command that `command` creates for a directory and a port.
    pub fn start(command: impl FnOnce(&Path, u16) -> Command) -> Self {
        let port = FreePort::any().unwrap();
        let program = Program::start(|directory| command(directory, port.number()));
        let program = program.unwrap_or_else(|error| panic!("{error}: `cargo xtask test` installs it"));
        let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
        let listens = || TcpStream::connect(address).is_ok();
        let is_up = (0..WAITS_FOR_START).any(|_| wait_until("the proxy to listen", listens).is_ok());
        assert!(is_up, "the proxy does not listen:\n{}", program.log());
        Self { address, program, _port: port }
    }

    /// Returns the proxy's log.
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// Sends a signal: `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        self.program.signal(name).unwrap();
    }
}

impl Site {
    pub fn start(kind: Kind, rules: &str) -> Self {
        Self::with_service(kind, Undecided::Refused, Service::with_rules(rules, &[]))
    }

    pub fn with_service(kind: Kind, undecided: Undecided, service: Service) -> Self {
        Self::of(Setup { kind, sample: Sample::Address, undecided, service, edits: Vec::new() })
    }

    /// Starts a sample with the profiles of `deploy/trypema/trypema.yaml`.
    pub fn of_sample(kind: Kind, sample: Sample, rules: &str) -> Self {
        let (undecided, service) = (Undecided::Refused, service_with_sample_profiles(rules));
        Self::of(Setup { kind, sample, undecided, service, edits: Vec::new() })
    }

    pub fn of(setup: Setup) -> Self {
        let application = Application::start();
        let proxy = Proxy::start(|directory, port| {
            let addresses = Addresses {
                port,
                trypema: setup.service.address,
                application: application.address,
                authenticator: authenticator::start(),
            };
            match setup.kind {
                Kind::Nginx => nginx(directory, &setup, &addresses),
                Kind::Caddy => caddy(directory, &setup, &addresses),
            }
        });
        Self { service: setup.service, application, proxy }
    }

    /// Opens a connection to the proxy.
    pub fn client(&self) -> Client {
        Client::connect(self.proxy.address)
    }

    /// Sends one `GET` request on a new connection.
    pub fn get(&self, path: &str) -> Reply {
        self.client().send("GET", path, &[], "")
    }

    /// Returns the proxy's log.
    pub fn log(&self) -> String {
        self.proxy.log()
    }
}

struct Addresses {
    port: u16,
    trypema: SocketAddr,
    application: SocketAddr,
    authenticator: SocketAddr,
}

/// Starts a server with the sample's profiles and these rules. Its other settings are the tests' own.
pub fn service_with_sample_profiles(rules: &str) -> Service {
    Service::of(|directory| {
        let sample: Value = serde_saphyr::from_str(&text_of("trypema/trypema.yaml")).unwrap();
        let profiles = json!({"forward_auth": sample["forward_auth"], "hash_secret": "s".repeat(32)});
        let (config, rules_file) = (directory.join("trypema.yaml"), directory.join("rules.yaml"));
        fs::write(&config, profiles.to_string()).unwrap();
        fs::write(&rules_file, rules).unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        command.arg("--rules").arg(rules_file);
        command
    })
}

fn nginx(directory: &Path, setup: &Setup, addresses: &Addresses) -> Command {
    let mut text = sample_text(setup);
    replace_once(&mut text, "listen 8000;", &format!("listen 127.0.0.1:{};", addresses.port));
    replace_once(&mut text, "server 127.0.0.1:9000;", &format!("server {};", addresses.application));
    text = text.replace("server 127.0.0.1:9100;", &format!("server {};", addresses.authenticator));
    fs::create_dir(directory.join("snippets")).unwrap();
    for name in ["trypema-answers.conf", "trypema-ask.conf", "trypema-http.conf", "trypema-limit.conf"] {
        let mut snippet = chosen(&text_of(&format!("nginx/snippets/{name}")), setup.undecided);
        if name == "trypema-http.conf" {
            replace_once(&mut snippet, "server 127.0.0.1:8080", &format!("server {}", addresses.trypema));
        }
        fs::write(directory.join("snippets").join(name), snippet).unwrap();
    }
    run_nginx(directory, &text)
}

/// Returns a command that runs nginx with `servers` inside `http`.
pub fn run_nginx(directory: &Path, servers: &str) -> Command {
    fs::write(directory.join("nginx.conf"), NGINX).unwrap();
    fs::write(directory.join("trypema.conf"), servers).unwrap();
    let mut command = Command::new("nginx");
    // On Debian it is in `/usr/sbin`, which is only in root's `PATH`.
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin");
    command.arg("-p").arg(directory).args(["-e", "stderr", "-c", "nginx.conf"]);
    command
}

fn caddy(directory: &Path, setup: &Setup, addresses: &Addresses) -> Command {
    let mut text = sample_text(setup);
    replace_once(&mut text, "{\n\tservers {", &format!("{{\n\t{CADDY}\tservers {{"));
    let snippet = chosen(&text_of("caddy/trypema.caddy"), setup.undecided);
    fs::write(directory.join("trypema.caddy"), snippet).unwrap();
    let mut command = run_caddy(directory, &text);
    command.env("LISTEN", format!(":{}", addresses.port));
    command.env("TRYPEMA", addresses.trypema.to_string());
    command.env("APPLICATION", addresses.application.to_string());
    command.env("AUTHENTICATOR", addresses.authenticator.to_string());
    command
}

/// Returns a command that runs Caddy with this file.
pub fn run_caddy(directory: &Path, file: &str) -> Command {
    fs::write(directory.join("Caddyfile"), file).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
    command.env("HOME", directory).env("XDG_DATA_HOME", directory).env("XDG_CONFIG_HOME", directory);
    command
}

/// Returns the sample with the test's own edits.
fn sample_text(setup: &Setup) -> String {
    let mut text = chosen(&text_of(setup.sample.file(setup.kind)), setup.undecided);
    for (from, to) in &setup.edits {
        replace_once(&mut text, from, to);
    }
    text
}

/// Replaces a text that occurs once.
pub fn replace_once(text: &mut String, from: &str, to: &str) {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    *text = text.replace(from, to);
}

/// Returns a text of `deploy/`, with its optional lines enabled or not. An optional line begins with a `#`
/// without a space.
fn chosen(text: &str, undecided: Undecided) -> String {
    if undecided == Undecided::Refused {
        return text.to_owned();
    }
    let chosen = |line: &str| {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let offered = rest.strip_prefix('#').filter(|offered| offered.starts_with(|first| first != ' '));
        offered.map_or_else(|| line.to_owned(), |offered| format!("{indent}{offered}"))
    };
    text.lines().map(|line| chosen(line) + "\n").collect()
}
