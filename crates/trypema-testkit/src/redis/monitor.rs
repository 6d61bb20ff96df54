//! Records every command that a server runs.

use std::thread::{self, JoinHandle};

use super::{Control, Error, Result, Server};

/// A recording of the commands of a server, until [`finish`](Monitor::finish).
#[derive(Debug)]
pub struct Monitor {
    end: String,
    control: Control,
    collector: JoinHandle<Result<Vec<Monitored>>>,
}

/// One command that a server ran.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Monitored {
    /// Whether a script issued the command, rather than a client.
    pub is_from_script: bool,
    /// The command and its arguments.
    pub words: Vec<Vec<u8>>,
}

impl Monitor {
    pub(crate) fn start(server: &Server) -> Result<Self> {
        let mut feed = server.control()?;
        feed.command(&["MONITOR"])?;
        // The server may be idle for any time.
        feed.set_timeout(None)?;
        let end = format!("end-of-monitor-{}", server.port());
        let last = end.clone().into_bytes();
        let collector = thread::spawn(move || collect(feed, &last));
        Ok(Self { end, control: server.control()?, collector })
    }

    /// Stops recording. Returns, in order, all commands that the server ran since [`Server::monitor`]
    /// returned.
    pub fn finish(mut self) -> Result<Vec<Monitored>> {
        // The feed is in the order of execution: once it shows this command, it has shown all previous
        // ones.
        self.control.command(&["ECHO", &self.end])?;
        self.collector.join().unwrap_or_else(|_| Err(Error::new("the monitor panicked")))
    }
}

impl Monitored {
    /// Parses `+1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "value"`.
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|&byte| byte == b'[')?;
        let close = open + line[open..].iter().position(|&byte| byte == b']')?;
        let is_from_script = line[open..close].ends_with(b" lua");
        let mut bytes = line[close + 1..].iter().copied();
        let mut words = Vec::new();
        while bytes.by_ref().any(|byte| byte == b'"') {
            words.push(quoted(&mut bytes)?);
        }
        Some(Self { is_from_script, words })
    }
}

fn collect(mut feed: Control, last: &[u8]) -> Result<Vec<Monitored>> {
    let mut seen = Vec::new();
    loop {
        let line = feed.read_line()?;
        let shown = || Error::new(format!("MONITOR gave `{}`", String::from_utf8_lossy(&line)));
        let monitored = Monitored::parse(&line).ok_or_else(shown)?;
        if monitored.words.last().is_some_and(|word| word == last) {
            return Ok(seen);
        }
        seen.push(monitored);
    }
}

/// Reads the rest of a quoted word, with Redis's escapes.
fn quoted(bytes: &mut impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    let mut word = Vec::new();
    loop {
        match bytes.next()? {
            b'"' => return Some(word),
            b'\\' => word.push(match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 0x07,
                b'b' => 0x08,
                b'x' => hexadecimal(bytes.next()?)? * 16 + hexadecimal(bytes.next()?)?,
                itself => itself,
            }),
            byte => word.push(byte),
        }
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_with_its_escapes() {
        let line = br#"+1700000000.123456 [0 127.0.0.1:50000] "SET" "a \"b\" ]\\" "\x00\xff\n""#;
        let words = vec![b"SET".to_vec(), br#"a "b" ]\"#.to_vec(), vec![0, 255, b'\n']];
        assert_eq!(Monitored::parse(line), Some(Monitored { is_from_script: false, words }));
    }

    #[test]
    fn a_command_of_a_script_is_told_apart() {
        let parsed = Monitored::parse(br#"+1700000000.123456 [0 lua] "get" """#);
        let words = vec![b"get".to_vec(), vec![]];
        assert_eq!(parsed, Some(Monitored { is_from_script: true, words }));
    }
}
