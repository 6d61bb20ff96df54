//! HTTPS, with certificates made for the test.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use trypema_testkit::program::{FreePort, Program};
use trypema_testkit::redis::wait_until;

use crate::client::Client;
use crate::harness::trypema;
use crate::timing::Stopwatch;

/// Longer than any successful request takes.
const PATIENCE: Duration = Duration::from_secs(20);
const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 30d}}}
";

/// A server with HTTPS. Its files are in its directory.
struct Https {
    program: Program,
    address: SocketAddr,
}

impl Https {
    fn start(flags: &[&str]) -> Self {
        let program = Program::start(|directory| {
            make_certificate(directory, 90);
            serve(directory, flags)
        })
        .unwrap();
        Self::of(program)
    }

    /// Returns a server that was started.
    fn of(mut program: Program) -> Self {
        let line = program.line("listens on https://").unwrap();
        let address = line.rsplit("://").next().unwrap().parse().unwrap();
        Self { program, address }
    }

    /// Runs `trypema check` with this certificate authority, and returns its exit code and output.
    fn check(&self, user: &str, authority: &str) -> (Option<i32>, String) {
        let server = format!("https://localhost:{}", self.address.port());
        let mut command = trypema();
        command.args(["check", &format!("user={user}"), "--server", &server]);
        if !authority.is_empty() {
            command.arg("--ca").arg(self.program.directory().join(authority));
        }
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Returns the body of a `GET` request to the administration listener, with the token `token-of-the-test`.
    fn administration(&self, path: &str) -> String {
        let log = self.program.log();
        let line = log.lines().find(|line| line.contains("administration is on https://")).unwrap();
        let port = line.rsplit(':').next().unwrap();
        let mut command = Command::new("curl");
        command.args(["-s", "-H", "Authorization: Bearer token-of-the-test"]);
        command.arg("--cacert").arg(self.program.directory().join("ca.pem"));
        let output = command.arg(format!("https://localhost:{port}{path}")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn is_sound(&self) {
        let (code, said) = self.check("somebody-else", "ca.pem");
        assert_ne!(code, Some(2), "{said}");
        assert!(!self.program.log().contains("panicked"), "{}", self.program.log());
    }
}

/// Flags for a server with an administration listener.
const WITH_ADMINISTRATION: [&str; 4] =
    ["--admin-listen", "127.0.0.1:0", "--admin-token", "token-of-the-test"];

/// Creates an authority `ca.pem`, and `certificate.pem` and `key.pem` for localhost, valid for some days.
fn make_certificate(directory: &Path, days: u32) {
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    fs::write(directory.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    openssl(
        directory,
        &format!("req -x509 {new_key} -keyout ca-key.pem -out ca.pem -days 30 -subj /CN=authority"),
    );
    openssl(directory, &format!("req {new_key} -keyout key.pem -out request.pem -subj /CN=localhost"));
    openssl(
        directory,
        &format!(
            "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out certificate.pem -days {days} -extfile names"
        ),
    );
}

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn serve(directory: &Path, flags: &[&str]) -> Command {
    fs::write(directory.join("rules.yaml"), RULES).unwrap();
    let mut command = trypema();
    command.args(["serve", "--listen", "127.0.0.1:0", "--rules", "rules.yaml"]);
    command.args(["--tls-certificate", "certificate.pem", "--tls-key", "key.pem"]).args(flags);
    command
}

#[test]
fn checks_travel_encrypted() {
    let https = Https::start(&[]);
    for expected in [0, 0, 1] {
        let (code, said) = https.check("ann", "ca.pem");
        assert_eq!(code, Some(expected), "{said}");
    }
    let (code, said) = https.check("ann", "");
    assert_eq!(code, Some(2), "an authority that nobody knows was trusted: {said}");
    https.is_sound();
}

#[test]
fn administration_is_encrypted_too() {
    let https = Https::start(&WITH_ADMINISTRATION);
    let log = https.program.log();
    let line = log.lines().find(|line| line.contains("administration is on https://")).unwrap();
    let port = line.rsplit(':').next().unwrap();
    let mut command = trypema();
    command.args(["keys", "show", "per-user|user=ann", "--server", &format!("https://localhost:{port}")]);
    command.env("TRYPEMA_ADMIN_TOKEN", "token-of-the-test");
    command.arg("--ca").arg(https.program.directory().join("ca.pem"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn plain_requests_fail_cleanly() {
    let https = Https::start(&[]);
    for bytes in [&b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n"[..], b"\0", b"\x16\x03\x01\xff\xff\0\0\0\0"]
    {
        let mut stream = TcpStream::connect(https.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A reset is an acceptable end, too.
        let is_open = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!stream.read_to_end(&mut answer).is_err_and(is_open), "{bytes:?} keeps the connection open");
        assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
    }
    https.is_sound();
}

#[test]
fn a_handshake_that_stops_ends_at_the_header_timeout() {
    let https =
        Https::start(&["--header-timeout", "1s", "--idle-timeout", "60s", "--request-timeout", "60s"]);
    let mut stream = TcpStream::connect(https.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let watch = Stopwatch::start();
    // The record header announces a hello of 512 bytes.
    stream.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    let ended = stream.read(&mut [0; 16]);
    let is_end = !ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    let took = watch.elapsed();
    assert!(is_end && took >= Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}");
    https.is_sound();
}

#[test]
fn a_new_certificate_is_taken_and_a_broken_one_is_not() {
    let mut https = Https::start(&[]);
    let directory = https.program.directory().to_owned();
    assert_eq!(https.check("ann", "ca.pem").0, Some(0));
    fs::rename(directory.join("ca.pem"), directory.join("old-ca.pem")).unwrap();
    make_certificate(&directory, 90);
    https.program.signal("HUP").unwrap();
    https.program.line("tls: certificate reloaded from").unwrap();
    assert_eq!(https.check("bob", "ca.pem").0, Some(0));
    assert_eq!(https.check("bob", "old-ca.pem").0, Some(2), "the old certificate is still shown");

    fs::write(
        directory.join("certificate.pem"),
        "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    https.program.signal("HUP").unwrap();
    https.program.line("keeping the previous certificate").unwrap();
    assert_eq!(https.check("cat", "ca.pem").0, Some(0));

    // A key of another certificate is refused as well.
    fs::rename(directory.join("ca.pem"), directory.join("shown-ca.pem")).unwrap();
    make_certificate(&directory, 90);
    fs::copy(directory.join("ca-key.pem"), directory.join("key.pem")).unwrap();
    let complaints = |log: String| log.matches("keeping the previous certificate").count();
    let before = complaints(https.program.log());
    https.program.signal("HUP").unwrap();
    wait_until("another complaint", || complaints(https.program.log()) > before).unwrap();
    assert_eq!(https.check("dan", "shown-ca.pem").0, Some(0));
    assert!(!https.program.log().contains("panicked"), "{}", https.program.log());
}

#[test]
fn a_key_of_another_certificate_keeps_it_from_starting() {
    let mut program = Program::start(|directory| {
        make_certificate(directory, 90);
        fs::copy(directory.join("ca-key.pem"), directory.join("key.pem")).unwrap();
        serve(directory, &[])
    })
    .unwrap();
    let ended = program.end().unwrap();
    let log = program.log();
    assert!(ended.code().is_some_and(|code| code != 0), "{ended}");
    assert!(log.contains("certificate.pem cannot be used with tls_key"), "{log}");
    assert!(log.contains("key.pem: the key does not belong to the certificate"), "{log}");
    assert!(!log.contains("panicked") && !log.contains("listens on"), "{log}");
}

/// Each message names the setting and the file, and says in words what is wrong.
#[test]
fn files_that_cannot_be_used_keep_it_from_starting() {
    let cut = |text: String| text.lines().take(3).collect::<Vec<_>>().join("\n") + "\n";
    type Edit = Box<dyn Fn(&Path)>;
    let edits: [(&str, Edit, &str); 7] = [
        ("certificate.pem", Box::new(|directory| make_certificate(directory, 0)), "the certificate expired "),
        (
            "key.pem",
            Box::new(move |directory| edit(&directory.join("key.pem"), cut)),
            "the file is incomplete: `-----END PRIVATE KEY-----` is missing",
        ),
        (
            "certificate.pem",
            Box::new(move |directory| edit(&directory.join("certificate.pem"), cut)),
            "the file is incomplete: `-----END CERTIFICATE-----` is missing",
        ),
        (
            "certificate.pem",
            Box::new(|directory| fs::write(directory.join("certificate.pem"), "hello\n").unwrap()),
            "the file has no certificate",
        ),
        (
            "key.pem",
            Box::new(|directory| fs::write(directory.join("key.pem"), "hello\n").unwrap()),
            "the file has no private key",
        ),
        (
            "key.pem",
            Box::new(|directory| {
                openssl(directory, "pkcs8 -topk8 -in key.pem -out encrypted.pem -passout pass:secret");
                fs::rename(directory.join("encrypted.pem"), directory.join("key.pem")).unwrap();
            }),
            "the private key is encrypted",
        ),
        (
            "key.pem",
            Box::new(|directory| fs::remove_file(directory.join("key.pem")).unwrap()),
            "No such file or directory",
        ),
    ];
    for (file, break_it, reason) in edits {
        let mut program = Program::start(|directory| {
            make_certificate(directory, 90);
            break_it(directory);
            serve(directory, &[])
        })
        .unwrap();
        let ended = program.end().unwrap();
        let log = program.log();
        assert_eq!(ended.code(), Some(2), "{log}");
        let setting = if file == "key.pem" { "tls_key" } else { "tls_certificate" };
        let line = log.lines().find(|line| line.contains(reason));
        let line = line.unwrap_or_else(|| panic!("no {reason:?} in {log}"));
        assert!(line.contains(&format!("{setting}: ")) && line.contains(file), "{line}");
        assert!(!log.contains("[80,") && !log.contains("panicked"), "{log}");
    }
}

fn edit(file: &Path, change: impl Fn(String) -> String) {
    fs::write(file, change(fs::read_to_string(file).unwrap())).unwrap();
}

#[test]
fn a_refused_reload_is_counted_and_shown_until_the_next_one() {
    let mut https = Https::start(&WITH_ADMINISTRATION);
    let directory = https.program.directory().to_owned();
    let reloads = |https: &Https| {
        let metrics = https.administration("/metrics");
        let value = |result: &str| {
            let name = format!("trypema_tls_reloads_total{{result=\"{result}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().to_owned()
        };
        [value("ok"), value("error")]
    };
    assert_eq!(reloads(&https), ["0", "0"]);
    assert!(!https.administration("/readyz").contains("warnings"));

    // Only the certificate is replaced: the authority in ca.pem has signed the one in force.
    let good = fs::read(directory.join("certificate.pem")).unwrap();
    openssl(
        &directory,
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out certificate.pem -days 0",
    );
    https.program.signal("HUP").unwrap();
    let line = https.program.line("cannot reload the certificate").unwrap();
    assert!(line.contains("certificate.pem: the certificate expired ") && line.contains("keeping"), "{line}");
    assert_eq!(reloads(&https), ["0", "1"]);
    let readiness = https.administration("/readyz");
    assert!(
        readiness.contains(r#""ready":true"#) && readiness.contains("certificate_refused"),
        "{readiness}"
    );

    fs::write(directory.join("certificate.pem"), good).unwrap();
    https.program.signal("HUP").unwrap();
    https.program.line("tls: certificate reloaded from").unwrap();
    wait_until("the reload to be counted", || reloads(&https) == ["1", "1"]).unwrap();
    assert!(!https.administration("/readyz").contains("warnings"));
}

#[test]
fn the_end_of_a_certificate_is_a_metric_and_logged() {
    for (days, line) in
        [(90, None), (20, Some("certificate.pem expires in ")), (3, Some("certificate.pem expires in "))]
    {
        let program = Program::start(|directory| {
            make_certificate(directory, days);
            serve(directory, &WITH_ADMINISTRATION)
        });
        let mut https = Https::of(program.unwrap());
        match line {
            Some(line) => drop(https.program.line(line).unwrap()),
            None => assert!(!https.program.log().contains("expires in"), "{}", https.program.log()),
        }
        let metrics = https.administration("/metrics");
        let name = "trypema_tls_certificate_expires_timestamp_seconds ";
        let end = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let file = https.program.directory().join("certificate.pem");
        let mut command = Command::new("sh");
        command
            .args(["-c", "date +%s -d \"$(openssl x509 -noout -enddate -in $0 | cut -d= -f2)\""])
            .arg(file);
        let expected = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(end, expected.trim());
    }
}

/// The command of docs/redis.md.
#[test]
fn redis_may_have_a_private_authority() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md")).unwrap();
    let line = page.lines().find(|line| line.contains("SSL_CERT_FILE=")).expect("the page has the command");
    let line = line.trim_start_matches("$ ").trim();
    let port = FreePort::any().unwrap();
    let redis = Program::start(|directory| {
        make_certificate(directory, 90);
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            "0",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--tls-port",
            &port.number().to_string(),
        ]);
        command.args(["--tls-cert-file", "certificate.pem", "--tls-key-file", "key.pem"]);
        command.args(["--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "no"]).current_dir(directory);
        command
    })
    .unwrap();
    wait_until("Redis to listen", || TcpStream::connect(("127.0.0.1", port.number())).is_ok()).unwrap();
    let authority = redis.directory().join("ca.pem");
    let (variable, arguments) = line.split_once(" trypema ").expect("the command runs trypema");
    assert_eq!(variable, "SSL_CERT_FILE=/etc/trypema/redis-ca.pem");
    let url = format!("rediss://localhost:{}", port.number());
    let arguments = arguments.replace("rediss://redis.example:6379", &url);
    let serve = |authority: Option<&Path>| {
        let program = Program::start(|_| {
            let mut command = trypema();
            command.args(arguments.split(' ')).args(["--listen", "127.0.0.1:0"]);
            command.envs(authority.map(|authority| ("SSL_CERT_FILE", authority)));
            command
        });
        program.unwrap()
    };
    let mut program = serve(Some(&authority));
    let address = program.line("listens on").unwrap();
    let address = address.rsplit("://").next().unwrap().parse().unwrap();
    let reply = Client::connect(address).send("POST", "/v1/check", &[], r#"{"attributes": {"user": "ann"}}"#);
    assert_eq!(reply.status, 200, "{reply:?}\n{}", program.log());
    // A certificate that nobody trusts never will be, so the server does not start.
    let mut program = serve(None);
    let ended = program.end().unwrap();
    let log = program.log();
    assert!(ended.code().is_some_and(|code| code != 0), "{ended}");
    assert!(log.contains("invalid peer certificate: UnknownIssuer"), "{log}");
}
