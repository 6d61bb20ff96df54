//! Sending bytes, and taking apart whatever comes back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any answer takes; what has not been closed by then hangs.
const PATIENCE: Duration = Duration::from_secs(9);

/// One answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Sends the bytes on a connection of their own and says that no more come; everything that is answered until the service closes.
pub(super) fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // A service that has refused already need not read the rest.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut received = Vec::new();
    if let Err(error) = stream.read_to_end(&mut received) {
        let is_close = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(is_close, "{error} after {:?}", String::from_utf8_lossy(bytes));
    }
    answers(&received)
}

/// Whole answers, without those that only tell the client to go on. The last may be cut off by a reset, and is then no answer.
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
