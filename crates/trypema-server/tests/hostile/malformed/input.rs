//! One input.

use std::fmt;

use trypema_testkit::random::Random;

use super::{bodies, heads, routes};

/// A request that is as it should be.
pub(super) const GOOD_BODY: &str =
    r#"{"attributes":{"user":"ann","endpoint":"/api/search"},"cost":1,"mode":"check"}"#;
const SHOWN: usize = 400;

/// What may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A 4xx, or a close.
    Refusal,
    /// The request is well framed: exactly one answer, and 200 only if its body can be answered.
    ByBody,
    /// At most one answer: what follows the body must not be taken for a second request.
    OneAnswer,
    /// It may have stayed valid: 200, 4xx, or a close.
    Anything,
    /// Exactly one answer; 200 is a unit spent.
    ForwardAuth,
    /// At most one answer, and whatever it is, nothing is spent.
    SpendsNothing,
    /// 200, then a 4xx or a close.
    GoodThenGarbage,
}

/// Bytes to send.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) kind: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) expected: Expected,
    /// Where the body begins, if the input has one that can be told apart.
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

    /// Bytes without a body of their own.
    pub(super) fn new(kind: &'static str, expected: Expected, bytes: impl Into<Vec<u8>>) -> Self {
        Self { kind, bytes: bytes.into(), expected, body_at: None }
    }

    /// A well framed check with this body.
    pub(super) fn with_body(kind: &'static str, body: &[u8]) -> Self {
        let mut bytes =
            format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len())
                .into_bytes();
        let body_at = Some(bytes.len());
        bytes.extend_from_slice(body);
        Self { kind, bytes, expected: Expected::ByBody, body_at }
    }

    /// Whether it is for the administration listener.
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

/// Changes a few bytes: replaced, left out, added, or a piece repeated.
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
