//! A small client of the testkit's own, so that what it does to a server does not go through what is tested.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Error, Result};

/// No command of a test takes a second; a stopped server never answers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One connection that sends a command and reads its reply (RESP2), each within 5 s.
#[derive(Debug)]
pub struct Control {
    stream: BufReader<TcpStream>,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// `+OK` and the like.
    Status(String),
    /// An error, with its code: `WRONGTYPE …`.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// A list.
    Array(Vec<Reply>),
    /// Nothing: a missing value.
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

    /// Connects as a `redis://[[user]:password@]host[:port][/database]` address says.
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

    /// Sends a command and gives its reply; an error reply is an `Err`.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply> {
        match self.raw(words)? {
            Reply::Error(message) => Err(Error::new(format!("{}: {message}", shown(words)))),
            reply => Ok(reply),
        }
    }

    /// Sends a command and gives its reply, also if it is a [`Reply::Error`].
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

    /// Waits so long for a reply from now on; for ever if `None`.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.stream.get_ref().set_read_timeout(timeout).map_err(Error::during("setting the timeout"))
    }

    /// The next line, without its end.
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
    /// The reply as text: a status, an error, bytes or a number; empty for a list or nothing.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Array(_) | Self::Nil => String::new(),
        }
    }

    /// The reply as a number, if it is one or is the text of one.
    pub fn integer(&self) -> Option<i64> {
        self.text().parse().ok()
    }

    /// What the list holds; nothing if this is none.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// The reply's bytes; empty if it has none.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            Self::Status(text) | Self::Error(text) => text.as_bytes(),
            _ => &[],
        }
    }
}

/// The command for a message, without what may be long.
fn shown<W: AsRef<[u8]>>(words: &[W]) -> String {
    let words: Vec<_> = words.iter().take(4).map(|word| String::from_utf8_lossy(word.as_ref())).collect();
    format!("`{}`", words.join(" "))
}
