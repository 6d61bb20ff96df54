//! A small HTTP client that sends exactly the given bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than any successful request takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the check listener or another server, and optionally one to the admin listener for admin
/// requests.
pub struct Client {
    stream: BufReader<TcpStream>,
    /// Checks go over this connection instead: one line each, as the line protocol of tests has them.
    lines: Option<BufReader<TcpStream>>,
    admin: Option<(Admin, Option<Box<Client>>)>,
}

/// The admin listener, and the token for requests that have none.
#[derive(Debug, Clone)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<String>,
}

/// The paths of the check listener.
const CHECKS: [&str; 8] = [
    "/v1/check",
    "/v1/reserve",
    "/v1/settle",
    "/v1/release",
    "/v1/renew",
    "/v1/forward-auth",
    "/healthz",
    "/readyz",
];
/// The paths that need no token.
const OPEN: [&str; 6] =
    ["/v1/check", "/v1/reserve", "/v1/settle", "/v1/release", "/v1/renew", "/v1/forward-auth"];

/// Whether a path belongs to the admin listener.
pub fn is_administration(path: &str) -> bool {
    !CHECKS.iter().any(|check| path.starts_with(check))
}

impl Admin {
    /// Sends one request on a new connection, with the token.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        let token = self.authorization(path, &[]);
        let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
        Client::connect(self.address).exchange(method, path, &headers, body)
    }

    /// Returns the token for a request that needs one and has none.
    fn authorization(&self, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        let needs_token = path.starts_with("/v1/") && !OPEN.iter().any(|open| path.starts_with(open));
        let has_token = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        self.token.as_ref().filter(|_| needs_token && !has_token).map(|token| format!("Bearer {token}"))
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream), lines: None, admin: None }
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::from(TcpStream::connect(address).unwrap())
    }

    /// Connects, unless no server listens.
    pub fn try_connect(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).ok().map(Self::from)
    }

    /// Adds a second connection, opened on demand, for requests that the admin listener serves.
    pub fn with_admin(self, admin: Option<Admin>) -> Self {
        Self { admin: admin.map(|admin| (admin, None)), ..self }
    }

    /// Adds a connection for checks to a listener with the line protocol.
    pub fn with_lines(self, address: SocketAddr) -> Self {
        Self { lines: Some(Self::connect(address).stream), ..self }
    }

    /// Sends a check over the line protocol, and returns the answer as HTTP would have it.
    fn ask_by_line(lines: &mut BufReader<TcpStream>, headers: &[(&str, &str)], body: &str) -> Reply {
        let parent =
            headers.iter().find(|(name, _)| *name == "traceparent").map_or("-", |(_, parent)| parent);
        lines.get_mut().write_all(format!("{parent} {body}\n").as_bytes()).unwrap();
        let mut body = String::new();
        lines.read_line(&mut body).unwrap();
        let status = serde_json::from_str::<Value>(&body).unwrap()["status"].as_u64().unwrap_or(200);
        Reply { status: u16::try_from(status).unwrap(), headers: Vec::new(), body }
    }

    /// Sends bytes unchanged.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends one request and returns its response. The connection stays open.
    ///
    /// With an admin listener, each request goes to the right listener. An admin request gets the token
    /// unless it has one.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        if let (Some(lines), "POST", "/v1/check") = (&mut self.lines, method, path) {
            return Self::ask_by_line(lines, headers, body);
        }
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

    /// Reads the next response, or returns `None` if the connection ends.
    pub fn read(&mut self) -> Option<Reply> {
        let mut reply = self.read_head()?;
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        reply.body = String::from_utf8(body).ok()?;
        Some(reply)
    }

    /// Reads the next response without a body, such as the response to `HEAD`.
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
