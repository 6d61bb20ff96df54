//! A malformed input and its expected responses.

use std::fmt;

use trypema_testkit::random::Random;

use super::{bodies, heads, routes};

/// The body of a valid request.
pub(super) const GOOD_BODY: &str =
    r#"{"attributes":{"user":"ann","endpoint":"/api/search"},"cost":1,"mode":"check"}"#;
const SHOWN: usize = 400;

/// The permitted responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A 4xx, or a close.
    Refusal,
    /// The request is correctly framed: exactly one response, and 200 only if the body is valid.
    ByBody,
    /// At most one response: the bytes after the body must not be parsed as a second request.
    OneAnswer,
    /// The request may still be valid: 200, 4xx, or a close.
    Anything,
    /// Exactly one response. A 200 spends one unit.
    ForwardAuth,
    /// At most one response, and no unit is spent.
    SpendsNothing,
    /// 200, then a 4xx or a close.
    GoodThenGarbage,
}

/// The bytes to send, and the permitted responses.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) kind: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) expected: Expected,
    /// The offset of the body, if the input has a well-defined one.
    body_at: Option<usize>,
}

impl Input {
    pub(super) fn any(random: &mut Random) -> Self {
        match random.below(10) {
            0..4 => bodies::any(random),
            4..8 => heads::any(random),
            _ => routes::any(random),
        }
    }

    /// Creates an input without a separate body.
    pub(super) fn new(kind: &'static str, expected: Expected, bytes: impl Into<Vec<u8>>) -> Self {
        Self { kind, bytes: bytes.into(), expected, body_at: None }
    }

    /// Creates a correctly framed check with this body.
    pub(super) fn with_body(kind: &'static str, body: &[u8]) -> Self {
        let mut bytes =
            format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len())
                .into_bytes();
        let body_at = Some(bytes.len());
        bytes.extend_from_slice(body);
        Self { kind, bytes, expected: Expected::ByBody, body_at }
    }

    /// Whether the input is sent to the admin listener.
    pub(super) fn is_administration(&self) -> bool {
        ["explain", "key"].contains(&self.kind)
    }

    pub(super) fn body(&self) -> &[u8] {
        self.body_at.map_or(&[], |at| &self.bytes[at..])
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(SHOWN)]);
        write!(f, "{} ({} bytes): {shown:?}", self.kind, self.bytes.len())
    }
}

/// Returns the bytes with a few mutations: replaced, removed or added bytes, or a repeated piece.
pub(super) fn mutated(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.between(1, 4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[at] = random.next_u64() as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.pick(b"\"\\{}[]:,0-\0\r\n \t\xff\x80;%")),
            _ => {
                let piece = bytes[at..(at + 9).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            bytes.push(b'?');
        }
    }
    bytes
}
