//! A small client that sends exactly what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything that works takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the check listener, or to another server; and one to the administration listener, where requests for it go.
pub struct Client {
    stream: BufReader<TcpStream>,
    admin: Option<(Admin, Option<Box<Client>>)>,
}

/// The administration listener, and the token that requests without one are sent with.
#[derive(Debug, Clone)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<String>,
}

/// The paths of the check listener.
const CHECKS: [&str; 5] = ["/v1/check", "/v1/refund", "/v1/forward-auth", "/healthz", "/readyz"];
/// Those that need no token.
const OPEN: [&str; 2] = ["/v1/check", "/v1/forward-auth"];

/// Whether a path belongs to the administration listener.
pub fn is_administration(path: &str) -> bool {
    !CHECKS.iter().any(|check| path.starts_with(check))
}

impl Admin {
    /// One request on a connection of its own, with the token.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        let token = self.authorization(path, &[]);
        let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
        Client::connect(self.address).exchange(method, path, &headers, body)
    }

    /// The token, for a request that needs one and has none.
    fn authorization(&self, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        let needs_token = path.starts_with("/v1/") && !OPEN.iter().any(|open| path.starts_with(open));
        let has_token = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        self.token.as_ref().filter(|_| needs_token && !has_token).map(|token| format!("Bearer {token}"))
    }
}

/// What was answered.
#[derive(Debug, Clone)]
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
        Self { stream: BufReader::new(stream), admin: None }
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::from(TcpStream::connect(address).unwrap())
    }

    /// The same with a second connection, made when it is needed, for what the administration listener serves.
    pub fn with_admin(self, admin: Option<Admin>) -> Self {
        Self { admin: admin.map(|admin| (admin, None)), ..self }
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// One request and its answer; the connection stays open.
    ///
    /// With an administration listener, requests go where they belong, and have its token unless they have one.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let Some((admin, connection)) = &mut self.admin else {
            return self.exchange(method, path, headers, body);
        };
        let token = admin.authorization(path, headers);
        let token = token.as_deref().map(|token| ("authorization", token));
        let headers: Vec<_> = headers.iter().copied().chain(token).collect();
        if !is_administration(path) {
            return self.exchange(method, path, &headers, body);
        }
        let connection = connection.get_or_insert_with(|| Box::new(Self::connect(admin.address)));
        connection.exchange(method, path, &headers, body)
    }

    fn exchange(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
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
