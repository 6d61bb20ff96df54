//! A small Redis client, so that tests do not control servers through the code under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Error, Result};

/// The timeout of a command: no command of a test takes a second, and a stopped server never answers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that sends a command and reads its reply (RESP2), each within 5 s.
#[derive(Debug)]
pub struct Control {
    stream: BufReader<TcpStream>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A status such as `+OK`.
    Status(String),
    /// An error with its code: `WRONGTYPE …`.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
    /// A missing value.
    Nil,
}

impl Control {
    /// Connects to `address`.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let failed = || Error::during(format!("connecting to {address}"));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed())?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed())?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Connects to a URL of the form `redis://[[user]:password@]host[:port][/database]`.
    pub fn open(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("redis://");
        let rest = rest.ok_or_else(|| Error::new(format!("`{url}` does not begin with redis://")))?;
        let rest = rest.split('?').next().unwrap_or_default();
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:6379") };
        let mut addresses = host.to_socket_addrs().map_err(Error::during(format!("looking up {host}")))?;
        let address = addresses.next().ok_or_else(|| Error::new(format!("{host} has no address")))?;
        let mut control = Self::connect(address)?;
        match credentials.split_once(':') {
            Some(("", password)) => control.command(&["AUTH", password])?,
            Some((user, password)) => control.command(&["AUTH", user, password])?,
            None => Reply::Nil,
        };
        if !database.is_empty() {
            control.command(&["SELECT", database])?;
        }
        Ok(control)
    }

    /// Sends a command and returns its reply. An error reply is an `Err`.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply> {
        match self.raw(words)? {
            Reply::Error(message) => Err(Error::new(format!("{}: {message}", shown(words)))),
            reply => Ok(reply),
        }
    }

    /// Sends a command and returns its reply, even if it is a [`Reply::Error`].
    pub fn raw<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).map_err(Error::during(shown(words)))?;
        self.read_reply().map_err(Error::during(shown(words)))
    }

    /// Sets the timeout for replies; `None` waits forever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.stream.get_ref().set_read_timeout(timeout).map_err(Error::during("setting the timeout"))
    }

    /// Returns the next line, without its end.
    pub(crate) fn read_line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).map_err(Error::during("reading"))?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(line.to_vec()),
            None => Err(Error::new("the connection was closed")),
        }
    }

    fn read_reply(&mut self) -> Result<Reply> {
        let line = String::from_utf8_lossy(&self.read_line()?).into_owned();
        let Some(kind) = line.chars().next() else {
            return Err(Error::new("an empty line instead of a reply"));
        };
        let rest = &line[kind.len_utf8()..];
        let number = || rest.parse::<i64>().map_err(Error::during(format!("a reply that begins `{line}`")));
        match kind {
            '+' => Ok(Reply::Status(rest.to_owned())),
            '-' => Ok(Reply::Error(rest.to_owned())),
            ':' => number().map(Reply::Integer),
            '$' => self.read_bulk(number()?),
            '*' => self.read_array(number()?),
            _ => Err(Error::new(format!("not a reply: `{line}`"))),
        }
    }

    fn read_bulk(&mut self, length: i64) -> Result<Reply> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(Reply::Nil);
        };
        let mut bytes = vec![0; length + b"\r\n".len()];
        self.stream.read_exact(&mut bytes).map_err(Error::during("reading"))?;
        bytes.truncate(length);
        Ok(Reply::Bulk(bytes))
    }

    fn read_array(&mut self, length: i64) -> Result<Reply> {
        if length < 0 {
            return Ok(Reply::Nil);
        }
        let replies: Result<Vec<Reply>> = (0..length).map(|_| self.read_reply()).collect();
        replies.map(Reply::Array)
    }
}

impl Reply {
    /// Returns the reply as text: a status, an error, bytes or a number; empty for an array or a missing
    /// value.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Array(_) | Self::Nil => String::new(),
        }
    }

    /// Returns the reply as a number, if it is one or its text is one.
    pub fn integer(&self) -> Option<i64> {
        self.text().parse().ok()
    }

    /// Returns the items of an array; empty for other replies.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns the bytes of the reply; empty if it has none.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            Self::Status(text) | Self::Error(text) => text.as_bytes(),
            _ => &[],
        }
    }
}

/// Formats a command for a message, without arguments that may be long.
fn shown<W: AsRef<[u8]>>(words: &[W]) -> String {
    let words: Vec<_> = words.iter().take(4).map(|word| String::from_utf8_lossy(word.as_ref())).collect();
    format!("`{}`", words.join(" "))
}
