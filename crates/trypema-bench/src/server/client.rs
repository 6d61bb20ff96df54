//! The least of an HTTP client: one connection, one request at a time.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far longer than any answer takes, so that a server that hangs is noticed.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Client {
    connection: TcpStream,
}

impl Client {
    /// A connection over which nothing was sent yet.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { connection })
    }

    /// The body of the answer, which must be a 200.
    pub fn post(&mut self, path: &str, body: &str) -> io::Result<String> {
        write!(
            self.connection,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        loop {
            if let Some(body) = complete(&answer)? {
                return Ok(body.to_owned());
            }
            let mut part = [0; 4_096];
            match self.connection.read(&mut part)? {
                0 => return Err(failure("the connection was closed")),
                length => answer.extend_from_slice(&part[..length]),
            }
        }
    }
}

/// The body, once all of it is there.
fn complete(answer: &[u8]) -> io::Result<Option<&str>> {
    let text = str::from_utf8(answer).map_err(io::Error::other)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let head = head.to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(failure(text));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|length| length.parse().ok()).ok_or_else(|| failure(text))?;
    Ok(body.get(..length))
}

fn failure(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}
