//! HTTPS, with certificates made for the test.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use trypema_testkit::program::Program;
use trypema_testkit::redis::wait_until;

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
        let mut program = Program::start(|directory| {
            make_certificate(directory);
            serve(directory, flags)
        })
        .unwrap();
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

    fn is_sound(&self) {
        let (code, said) = self.check("somebody-else", "ca.pem");
        assert_ne!(code, Some(2), "{said}");
        assert!(!self.program.log().contains("panicked"), "{}", self.program.log());
    }
}

/// Creates an authority `ca.pem`, and `certificate.pem` and `key.pem` for localhost.
fn make_certificate(directory: &Path) {
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    fs::write(directory.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    openssl(
        directory,
        &format!("req -x509 {new_key} -keyout ca-key.pem -out ca.pem -days 30 -subj /CN=authority"),
    );
    openssl(directory, &format!("req {new_key} -keyout key.pem -out request.pem -subj /CN=localhost"));
    openssl(
        directory,
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out certificate.pem -days 30 -extfile names",
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
    let https = Https::start(&["--admin-listen", "127.0.0.1:0", "--admin-token", "token-of-the-test"]);
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
    make_certificate(&directory);
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
    make_certificate(&directory);
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
        make_certificate(directory);
        fs::copy(directory.join("ca-key.pem"), directory.join("key.pem")).unwrap();
        serve(directory, &[])
    })
    .unwrap();
    let ended = program.end().unwrap();
    let log = program.log();
    assert!(ended.code().is_some_and(|code| code != 0), "{ended}");
    assert!(log.contains("the certificate cannot be used with its key"), "{log}");
    assert!(!log.contains("panicked") && !log.contains("listens on"), "{log}");
}
