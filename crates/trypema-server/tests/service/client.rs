//! A small client that sends exactly what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything that works takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// What was answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// With names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::from(TcpStream::connect(address).unwrap())
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// One request and its answer; the connection stays open.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        request.push_str(body);
        self.write(request.as_bytes()).unwrap();
        if method == "HEAD" { self.read_head().unwrap() } else { self.read().unwrap() }
    }

    /// The next answer; `None` if the connection ends instead.
    pub fn read(&mut self) -> Option<Reply> {
        let mut reply = self.read_head()?;
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        reply.body = String::from_utf8(body).ok()?;
        Some(reply)
    }

    /// The next answer without a body, as those to HEAD are.
    pub fn read_head(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Some(Reply { status, headers, body: String::new() })
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
