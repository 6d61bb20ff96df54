//! Sends bytes and parses the responses.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any response takes. A connection that is not closed by then hangs.
const PATIENCE: Duration = Duration::from_secs(9);

/// One response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Sends the bytes on a new connection, shuts down its write half, and returns all responses until the server
/// closes it.
pub(super) fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // A server that has already refused the request need not read the rest.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut received = Vec::new();
    if let Err(error) = stream.read_to_end(&mut received) {
        let is_close = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(is_close, "{error} after {:?}", String::from_utf8_lossy(bytes));
    }
    answers(&received)
}

/// Returns the complete responses, without `100 Continue`. A last response that a reset has truncated is
/// ignored.
fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        bytes = &bytes[end + 4..];
        let status: u16 = head.strip_prefix("HTTP/1.").unwrap()[2..5].parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let Some(body) = bytes.get(..length) else { break };
        bytes = &bytes[length..];
        if status != 100 {
            all.push(Answer { status, body: String::from_utf8(body.to_vec()).unwrap() });
        }
    }
    all
}
