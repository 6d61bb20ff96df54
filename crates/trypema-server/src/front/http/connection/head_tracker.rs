//! Tells whether a part of a request's head has arrived whose rest has not.
//!
//! hyper reads as much as there is, so a read that completes one request may bring the start of the next one. hyper
//! keeps it in a buffer that nobody else sees. So the tracker finds the ends of heads and bodies by itself. It
//! follows RFC 9112 as hyper does. It refuses nothing: where a request is malformed, hyper closes the connection.

use crate::net::Heads;

/// The longest start of a line that matters, without blanks: `content-length:` and 20 digits, or a chunk's size.
const MAX_LINE: usize = 48;

/// The position in the requests of one connection.
#[derive(Debug)]
pub(super) struct HeadTracker {
    part: Part,
    /// The bytes until the next line: the rest of a body, or of a chunk.
    skipped: u64,
    line: Line,
}

/// The part of a request that the current line belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The next request has not begun: so far, there are only empty lines.
    BeforeHead,
    Head(Body),
    ChunkSize,
    Trailers,
    /// A length is malformed, so the rest cannot be followed.
    Unknown,
}

/// The body that the lines of a head announce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Bytes(u64),
    Chunked,
}

/// The start of a line, in lower case and without blanks.
#[derive(Debug)]
struct Line {
    text: [u8; MAX_LINE],
    length: usize,
}

impl HeadTracker {
    pub(super) fn new() -> Self {
        Self { part: Part::BeforeHead, skipped: 0, line: Line { text: [0; MAX_LINE], length: 0 } }
    }
}

impl Heads for HeadTracker {
    /// Whether the last bytes were a part of a head. Also if that is unknown, because then a client must not gain time.
    fn is_mid_head(&self) -> bool {
        match self.part {
            Part::BeforeHead => self.skipped == 0 && !self.line.is_empty(),
            Part::Head(_) | Part::Unknown => true,
            Part::ChunkSize | Part::Trailers => false,
        }
    }

    /// Follows the bytes of a read.
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.part != Part::Unknown {
            if self.skipped > 0 {
                let count = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(bytes.len());
                self.skipped -= count as u64;
                bytes = &bytes[count..];
                continue;
            }
            let end = memchr::memchr(b'\n', bytes);
            self.add_to_line(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else { return };
            self.end_line();
            bytes = &bytes[end + 1..];
        }
    }
}

impl HeadTracker {
    fn add_to_line(&mut self, bytes: &[u8]) {
        let is_header = matches!(self.part, Part::BeforeHead | Part::Head(_));
        // Most lines are headers that do not matter. One byte says that they are not empty.
        let is_relevant = |first: u8| !is_header || matches!(first, b'c' | b'C' | b't' | b'T' | b'\r');
        match bytes.first() {
            Some(first) if self.line.length == 0 && !is_relevant(*first) => self.line.add(&[*first]),
            Some(_) if is_header && self.line.length > 0 && !is_relevant(self.line.text[0]) => {}
            _ => self.line.add(bytes),
        }
    }

    fn end_line(&mut self) {
        let next = self.after_line(self.line.content());
        self.line.length = 0;
        (self.part, self.skipped) = next;
    }

    /// Returns the part after a line, and the bytes to skip before it.
    fn after_line(&self, line: &[u8]) -> (Part, u64) {
        let part = match self.part {
            Part::BeforeHead if line.is_empty() => Part::BeforeHead,
            Part::BeforeHead => Part::Head(Body::Bytes(0)),
            Part::Head(Body::Bytes(length)) if line.is_empty() => return (Part::BeforeHead, length),
            Part::Head(Body::Chunked) if line.is_empty() => Part::ChunkSize,
            Part::Head(body) => body.after_header(line).map_or(Part::Unknown, Part::Head),
            Part::ChunkSize => match chunk_size(line) {
                Some(0) => Part::Trailers,
                // A line end follows the chunk.
                Some(size) => return (Part::ChunkSize, size.saturating_add(2)),
                None => Part::Unknown,
            },
            Part::Trailers if line.is_empty() => Part::BeforeHead,
            Part::Trailers => Part::Trailers,
            Part::Unknown => Part::Unknown,
        };
        (part, 0)
    }
}

impl Body {
    /// Returns the body after another header line, or `None` if its length is malformed or was cut off.
    fn after_header(self, line: &[u8]) -> Option<Self> {
        if line.starts_with(b"transfer-encoding:") {
            // Another coding than chunked is an error.
            return Some(Self::Chunked);
        }
        match line.strip_prefix(b"content-length:") {
            Some(_) if line.len() == MAX_LINE => None,
            Some(digits) if self != Self::Chunked => number(digits, 10).map(Self::Bytes),
            _ => Some(self),
        }
    }
}

impl Line {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().filter(|byte| !matches!(byte, b' ' | b'\t')) {
            let Some(place) = self.text.get_mut(self.length) else { return };
            *place = byte.to_ascii_lowercase();
            self.length += 1;
        }
    }

    /// Returns the line without its end.
    fn content(&self) -> &[u8] {
        let line = self.text.get(..self.length).unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    fn is_empty(&self) -> bool {
        self.content().is_empty()
    }
}

/// Parses the size of a chunk, before its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if size.len() == MAX_LINE { None } else { number(size, 16) }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` would accept a sign.
    let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| are_digits)?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of every framing, and of allowed spellings.
    const REQUESTS: [&str; 9] = [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\nhost: a\n\n",
        "C / HTTP/1.1\r\ncookie: content-length: 9\r\ntransfer: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: \t 5 \r\nhost: a\r\n\r\n\r\n\r\n{",
        "POST / HTTP/1.1\r\nCONTENT-LENGTH:00000000000000000002\r\ncontent-length: 2\r\n\r\n{}",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 99\r\nTransfer-Encoding: gzip, Chunked\r\nhost: a\r\n\r\n\
         B;x=\"0\"\r\n\r\n\r\n0\r\n\r\nab\r\n00 ; y\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 99\r\n\r\n2\r\n{}\r\n0\r\nx: y\r\nz: 1\r\n\r\n",
        "DELETE /long HTTP/1.1\r\nx: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
    ];

    fn is_mid_head_after(reads: &[&[u8]]) -> bool {
        let mut tracker = HeadTracker::new();
        reads.iter().for_each(|read| tracker.read(read));
        tracker.is_mid_head()
    }

    #[test]
    fn between_requests_no_head_has_begun() {
        assert!(!is_mid_head_after(&[]));
        for first in REQUESTS {
            for second in REQUESTS {
                let both = [first, second].concat();
                for split in 0..=both.len() {
                    let (one, two) = both.as_bytes().split_at(split);
                    assert!(!is_mid_head_after(&[one, two]), "{both:?} at {split}");
                }
                let bytes: Vec<&[u8]> = both.as_bytes().chunks(1).collect();
                assert!(!is_mid_head_after(&bytes), "{both:?}");
            }
        }
    }

    #[test]
    fn every_part_of_a_head_is_one() {
        let head = "POST / HTTP/1.1\r\ncontent-length: 5\r\nhost: a\r\n\r\n";
        for before in REQUESTS {
            for end in 1..head.len() {
                let read = [before, &head[..end]].concat();
                assert!(is_mid_head_after(&[read.as_bytes()]), "{read:?}");
                let (one, two) = read.as_bytes().split_at(before.len());
                assert!(is_mid_head_after(&[one, two]), "{read:?}");
            }
            let read = [before, head, "{"].concat();
            assert!(!is_mid_head_after(&[read.as_bytes()]), "a part of a body: {read:?}");
        }
    }

    /// Such a request is refused. Until the connection closes, its client gains no time.
    #[test]
    fn what_cannot_be_followed_counts_as_a_head() {
        let zeros = "0".repeat(MAX_LINE);
        for head in [
            "content-length: x\r\n\r\n",
            "content-length: -1\r\n\r\n",
            "content-length: +1\r\n\r\n",
            "content-length:\r\n\r\n",
            "content-length: 99999999999999999999\r\n\r\n",
            &format!("content-length: {zeros}5\r\n\r\n12345"),
            "transfer-encoding: chunked\r\n\r\nx\r\n",
            &format!("transfer-encoding: chunked\r\n\r\n{zeros}5\r\n12345\r\n0\r\n\r\n"),
        ] {
            let read = format!("POST / HTTP/1.1\r\n{head}");
            assert!(is_mid_head_after(&[read.as_bytes()]), "{read:?}");
        }
    }
}
