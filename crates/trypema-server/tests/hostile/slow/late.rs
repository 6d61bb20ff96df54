//! Timeouts: the server closes connections that take too long.

use std::io::Write;
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use super::crowd::is_closed;
use crate::harness::Service;
use crate::process::is_sound;
use crate::timing::Stopwatch;

/// A timeout of one second, checked every half second, with a tolerance for a busy machine. The other timeouts are
/// longer.
const IN_TIME: Range<Duration> = Duration::from_millis(900)..Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Timeouts that no test reaches.
const PATIENT: [&str; 6] = ["--header-timeout", "60s", "--request-timeout", "60s", "--idle-timeout", "60s"];

#[test]
fn trickled_heads_end_at_the_header_timeout() {
    let service = impatient("--header-timeout");
    let mut stream = TcpStream::connect(service.address).unwrap();
    let mut head = b"GET /healthz HTTP/1.1\r\nx-slow: ".iter().chain(std::iter::repeat(&b'a'));
    // Every byte is activity, but none extends the header timeout.
    ends_in_time(&service, &mut stream, |stream| stream.write_all(&[*head.next().unwrap()]).is_ok());
}

#[test]
fn a_second_head_that_is_trickled_ends_at_the_header_timeout() {
    let service = impatient("--header-timeout");
    let mut stream = TcpStream::connect(service.address).unwrap();
    // The head stays valid, however many of its bytes arrive at once.
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\nGET /healthz HTTP/1.1\r\nx-slow: ")
        .unwrap();
    ends_in_time(&service, &mut stream, |stream| stream.write_all(b"a").is_ok());
}

/// A complete request of each kind of body.
const COMPLETE: [&str; 3] = [
    "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n",
    "POST /v1/check HTTP/1.1\r\nhost: test\r\nContent-Length: 31\r\n\r\n{\"attributes\": {\"user\": \"ann\"}}",
    "POST /v1/check HTTP/1.1\r\nhost: test\r\nTransfer-Encoding: chunked\r\n\r\n\
     1f\r\n{\"attributes\": {\"user\": \"ann\"}}\r\n0\r\n\r\n",
];

/// A part of a second head came with the first request, and the rest never comes.
#[test]
fn a_second_head_that_stops_ends_at_the_header_timeout() {
    for first in COMPLETE {
        let service = impatient("--header-timeout");
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.write_all(format!("{first}GET /healthz HT").as_bytes()).unwrap();
        ends_in_time(&service, &mut stream, |_| true);
    }
}

/// Nothing of another head came with these requests.
#[test]
fn silence_after_pipelined_requests_ends_at_the_idle_timeout() {
    let service = impatient("--idle-timeout");
    let mut stream = TcpStream::connect(service.address).unwrap();
    stream.write_all(COMPLETE.concat().as_bytes()).unwrap();
    ends_in_time(&service, &mut stream, |_| true);
    assert_eq!(service.metric(r#"trypema_http_requests_total{route="check",status="200"}"#), 2.0);
}

#[test]
fn a_body_that_stops_ends_at_the_request_timeout() {
    let service = impatient("--request-timeout");
    let mut stream = TcpStream::connect(service.address).unwrap();
    stream.write_all(b"POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{").unwrap();
    ends_in_time(&service, &mut stream, |_| true);
}

#[test]
fn a_body_that_is_trickled_ends_at_the_request_timeout() {
    let service = impatient("--request-timeout");
    let mut stream = TcpStream::connect(service.address).unwrap();
    stream.write_all(b"POST /v1/check HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    ends_in_time(&service, &mut stream, |stream| stream.write_all(b"1\r\n \r\n").is_ok());
}

#[test]
fn a_body_that_nobody_wants_ends_in_time() {
    let service = Service::start(&["--request-timeout", "1s", "--idle-timeout", "1s"]);
    let mut stream = TcpStream::connect(service.address).unwrap();
    // The server responds after the head and does not read the body.
    stream
        .write_all(b"POST /v1/forward-auth HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n")
        .unwrap();
    ends_within(&mut stream, Duration::ZERO..IN_TIME.end, |stream| stream.write_all(b"a").is_ok());
    is_sound(&service);
}

#[test]
fn silence_ends_at_the_idle_timeout() {
    let service = impatient("--idle-timeout");
    let mut stream = TcpStream::connect(service.address).unwrap();
    ends_in_time(&service, &mut stream, |_| true);
}

#[test]
fn silence_after_an_answer_ends_at_the_idle_timeout() {
    let service = impatient("--idle-timeout");
    let mut client = service.client();
    assert_eq!(client.send("GET", "/healthz", &[], "").status, 200);
    let watch = Stopwatch::start();
    assert!(client.read().is_none());
    assert!(IN_TIME.contains(&watch.elapsed()), "{:?}", watch.elapsed());
    is_sound(&service);
}

/// Starts a server in which only this timeout is short.
fn impatient(timeout: &str) -> Service {
    let mut flags = PATIENT;
    let at = flags.iter().position(|flag| *flag == timeout).unwrap();
    flags[at + 1] = "1s";
    Service::start(&flags)
}

/// Asserts that the server closes the connection in time, whatever `act` does, and counts it.
fn ends_in_time(service: &Service, stream: &mut TcpStream, act: impl FnMut(&mut TcpStream) -> bool) {
    ends_within(stream, IN_TIME, act);
    assert_eq!(service.metric(r#"trypema_connections_closed_early_total{reason="timed_out"}"#), 1.0);
    is_sound(service);
}

/// Asserts that the server closes the connection within `time`, for any reason. `act` returns whether the
/// connection can still be written to.
pub(super) fn ends_within(
    stream: &mut TcpStream,
    time: Range<Duration>,
    mut act: impl FnMut(&mut TcpStream) -> bool,
) {
    let watch = Stopwatch::start();
    while !is_over(stream) && act(stream) {
        assert!(watch.elapsed() < time.end, "still open");
        thread::sleep(BETWEEN_LOOKS);
    }
    assert!(time.contains(&watch.elapsed()), "{:?}", watch.elapsed());
}

/// Whether the connection is closed, after discarding received bytes.
fn is_over(stream: &mut TcpStream) -> bool {
    use std::io::Read;
    while !is_closed(stream) {
        if stream.read(&mut [0; 1024]).is_err() {
            return false;
        }
    }
    true
}
