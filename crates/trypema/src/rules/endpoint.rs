//! Endpoints: the patterns that rules name, and the paths that requests have.

use std::borrow::Cow;

/// Patterns are written by people: this is more than they need, and bounds the work of matching.
pub(super) const MAX_PATTERN_SEGMENTS: usize = 32;

/// One more than any pattern has: what is beyond only `**` can match, which takes any number.
const MAX_PATH_SEGMENTS: usize = MAX_PATTERN_SEGMENTS + 1;

/// Which requests a rule is for: `/api/search`, `/users/*/posts`, `/api/**`, `POST /login`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointPattern {
    pub(super) method: Option<Box<str>>,
    pub(super) segments: Box<[Segment]>,
    /// Whether it ends in `**`.
    pub(super) is_open: bool,
}

/// One segment of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    Exactly(Box<str>),
    Any,
}

impl EndpointPattern {
    /// Reads a pattern; what is wrong with it otherwise.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(method), path),
            None => (None, text),
        };
        if let Some(method) = method
            && (method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()))
        {
            return Err(format!("method {method:?} is not in upper-case letters"));
        }
        let Some(below) = path.strip_prefix('/') else {
            return Err(format!("path {path:?} does not start with `/`"));
        };
        let mut texts: Vec<&str> = below.split('/').filter(|segment| !segment.is_empty()).collect();
        let is_open = texts.pop_if(|last| *last == "**").is_some();
        if texts.len() > MAX_PATTERN_SEGMENTS {
            return Err(format!("{} segments: at most {MAX_PATTERN_SEGMENTS} are allowed", texts.len()));
        }
        let segments = texts.into_iter().map(Segment::parse).collect::<Result<_, _>>()?;
        Ok(Self { method: method.map(Into::into), segments, is_open })
    }

    /// Whether a request is for this endpoint. The index answers this for all rules at once; this explains one.
    pub(super) fn matches(&self, method: Option<&str>, path: Option<&Path<'_>>) -> bool {
        let Some(path) = path else { return false };
        let is_method = self.method.as_deref().is_none_or(|wanted| method == Some(wanted));
        let is_length = match self.is_open {
            true => path.len() >= self.segments.len(),
            false => path.len() == self.segments.len(),
        };
        let matches = |(wanted, given): (&Segment, &Cow<'_, str>)| match wanted {
            Segment::Any => true,
            Segment::Exactly(wanted) => **wanted == **given,
        };
        is_method && is_length && self.segments.iter().zip(path.segments()).all(matches)
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "*" => Ok(Self::Any),
            "**" => Err("`**` may only be the last segment".to_owned()),
            "." | ".." => Err(format!("segment {text:?} never remains in a path")),
            text if text.contains('*') => Err(format!("segment {text:?} has a `*` beside other text")),
            text if text.contains(['?', '#', '%', ' ']) || text.contains(char::is_control) => {
                Err(format!("segment {text:?} has a character that never remains in a path"))
            }
            text => Ok(Self::Exactly(text.into())),
        }
    }
}

/// A request's path, as servers understand it however it is written: without a query, percent-encoding, empty and `.`
/// segments, with `..` followed. So nobody gets around a rule by writing a path another way.
#[derive(Debug, Clone)]
pub(super) struct Path<'a> {
    segments: [Cow<'a, str>; MAX_PATH_SEGMENTS],
    kept: usize,
    /// Segments beyond those kept.
    further: usize,
}

impl<'a> Path<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let mut read =
            Self { segments: [const { Cow::Borrowed("") }; MAX_PATH_SEGMENTS], kept: 0, further: 0 };
        for raw in path[..end].split('/') {
            let segment = decoded(raw);
            match &*segment {
                "" | "." => {}
                ".." => read.pop(),
                _ => read.push(segment),
            }
        }
        read
    }

    fn push(&mut self, segment: Cow<'a, str>) {
        match self.segments.get_mut(self.kept) {
            Some(free) => {
                *free = segment;
                self.kept += 1;
            }
            None => self.further += 1,
        }
    }

    fn pop(&mut self) {
        if self.further > 0 {
            self.further -= 1;
        } else {
            self.kept = self.kept.saturating_sub(1);
        }
    }

    /// How many segments it has.
    pub(super) fn len(&self) -> usize {
        self.kept + self.further
    }

    /// The first of them: one more than any pattern has.
    pub(super) fn segments(&self) -> &[Cow<'a, str>] {
        &self.segments[..self.kept]
    }
}

/// A segment without percent-encoding. What is encoded badly stays as it is.
fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let bytes = segment.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(hexadecimal);
        plain.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    let value = digits.iter().try_fold(0, |value, byte| Some(value * 16 + digit(byte)?))?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, path: &str) -> bool {
        EndpointPattern::parse(pattern).unwrap().matches(Some("GET"), Some(&Path::new(path)))
    }

    #[test]
    fn patterns_match_what_they_say() {
        assert!(is_match("/api/search", "/api/search"));
        assert!(!is_match("/api/search", "/api/search/more"));
        assert!(!is_match("/api/search", "/api"));
        assert!(is_match("/users/*/posts", "/users/7/posts"));
        assert!(!is_match("/users/*/posts", "/users/posts"));
        assert!(is_match("/api/**", "/api") && is_match("/api/**", "/api/a/b/c"));
        assert!(!is_match("/api/**", "/apis"));
        assert!(is_match("/**", "/") && is_match("/", "/"));
        assert!(is_match("GET /x", "/x") && !is_match("POST /x", "/x"));
    }

    #[test]
    fn another_spelling_is_the_same_path() {
        for path in [
            "/api/search/",
            "//api///search",
            "/api/./search",
            "/api/x/../search",
            "/%61pi/se%61rch",
            "/api/search?q=1",
        ] {
            assert!(is_match("/api/search", path), "{path}");
        }
        assert!(!is_match("/api/search", "/api%2Fsearch"));
        assert!(!is_match("/api/search", "/api/search%"));
    }

    #[test]
    fn endless_paths_are_bounded() {
        let long = "/a".repeat(100_000);
        assert_eq!(Path::new(&long).len(), 100_000);
        assert!(is_match("/a/**", &long) && !is_match("/a", &long));
        let and_back = format!("/api{}{}/search", "/a".repeat(100), "/..".repeat(100));
        assert!(is_match("/api/search", &and_back));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for pattern in ["api", "/a/**/b", "/a*b", "get /x", " /x", "/a/../b", "/a b", "/x?y"] {
            assert!(EndpointPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
