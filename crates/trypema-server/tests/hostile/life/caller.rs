//! Clients that record for every request whether it was answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::timing::Stopwatch;

/// Longer than any successful request takes.
const PATIENCE: Duration = Duration::from_secs(20);
const QUESTION: &str =
    "POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 29\r\n\r\n{\"attributes\":{\"user\":\"ann\"}}";

/// The outcome of a client's requests.
#[derive(Debug)]
pub(super) struct Called {
    /// The number of allowed requests.
    pub(super) allowed: u64,
    /// The time at which the unanswered request was sent, by the client's stopwatch. There is at most one.
    pub(super) unanswered_at: Option<Duration>,
}

/// Sends requests on one connection, one after the other, until the server closes it.
pub(super) fn call(address: SocketAddr, watch: Stopwatch) -> JoinHandle<Called> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    thread::spawn(move || call_on(stream, watch))
}

fn call_on(mut stream: TcpStream, watch: Stopwatch) -> Called {
    let mut allowed = 0;
    loop {
        let sent_at = watch.elapsed();
        // A request that cannot be written was not received.
        if stream.write_all(QUESTION.as_bytes()).is_err() {
            return Called { allowed, unanswered_at: None };
        }
        match answer(&mut stream) {
            None => return Called { allowed, unanswered_at: Some(sent_at) },
            Some(answer) => {
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                allowed += u64::from(answer.contains(r#"{"allowed":true"#));
                if answer.contains("\r\nconnection: close\r\n") {
                    return Called { allowed, unanswered_at: None };
                }
            }
        }
    }
}

/// Reads a complete response. Returns `None` if the connection ends before its first byte. Fails on a
/// truncated response.
fn answer(stream: &mut TcpStream) -> Option<String> {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) if received.is_empty() => return None,
            Ok(bytes) if bytes > 0 => received.extend_from_slice(&piece[..bytes]),
            ended => panic!("{ended:?} within an answer: {:?}", String::from_utf8_lossy(&received)),
        }
        let text = String::from_utf8(received.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return Some(text);
            }
        }
    }
}
