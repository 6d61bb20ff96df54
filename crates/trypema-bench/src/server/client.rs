//! A minimal HTTP client: one connection, one request at a time.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A read timeout, far longer than any response takes, so that a hung server is noticed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The admin token of our own servers.
pub const ADMIN_TOKEN: &str = "token-of-the-benchmark";
/// Large enough to read all but the longest responses at once.
const PART: usize = 64 * 1_024;

pub struct Client {
    connection: TcpStream,
    /// The read buffer.
    part: Vec<u8>,
}

impl Client {
    /// Opens a connection. Sends nothing yet.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { connection, part: vec![0; PART] })
    }

    /// Sends a `GET` request and returns the body of the response, which must be a 200.
    pub fn get(&mut self, path: &str) -> io::Result<String> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Sends a `POST` request and returns the body of the response, which must be a 200.
    pub fn post(&mut self, path: &str, body: &str) -> io::Result<String> {
        self.ask(&format!("POST {path} HTTP/1.1\r\n{}", with_body(body)))
    }

    /// Sends a `PUT` request that overwrites any revision, and returns the body of the response, which must
    /// be a 200.
    pub fn put(&mut self, path: &str, body: &str) -> io::Result<String> {
        let head = format!("PUT {path} HTTP/1.1\r\nIf-Match: *\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n");
        self.ask(&format!("{head}{}", with_body(body)))
    }

    fn ask(&mut self, request: &str) -> io::Result<String> {
        self.connection.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        loop {
            match self.connection.read(&mut self.part)? {
                0 => return Err(failure("the connection was closed")),
                length => answer.extend_from_slice(&self.part[..length]),
            }
            if let Some(body) = complete(&answer)? {
                return Ok(body.to_owned());
            }
        }
    }
}

/// Returns the remaining headers and the body of a request.
fn with_body(body: &str) -> String {
    let length = body.len();
    format!("Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Returns the body if the response is complete.
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
