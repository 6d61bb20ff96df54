//! The path of a request, and the one form in which operators' paths are compared.

use std::borrow::Cow;

use super::readings;

/// A request path, in every way in which servers read it.
///
/// A reading has no query, no empty segments and no needless percent-encoding. Most paths have one. Others
/// have several, because servers differ in how they read dot segments, encoded slashes, backslashes and empty
/// segments; see [`readings`]. A rule applies if any reading matches, so a client cannot evade a rule by
/// spelling a path differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules) struct Path<'a> {
    /// The reading in which operators write paths.
    canonical: Cow<'a, str>,
    /// The other readings; `None` if there are too many.
    others: Option<Vec<String>>,
}

impl<'a> Path<'a> {
    pub(in crate::rules) fn new(path: &'a str) -> Self {
        if is_plain(path.as_bytes()) {
            return Self { canonical: Cow::Borrowed(path), others: Some(Vec::new()) };
        }
        let path = without_query(path);
        let canonical = canonical_without_query(path);
        let others = match readings::are_certainly_one(path) {
            true => Some(Vec::new()),
            false => readings::others(path, &canonical),
        };
        Self { canonical, others }
    }

    /// Returns the readings, each once. A segment follows each slash; the root is the empty string.
    pub(in crate::rules) fn readings(&self) -> impl Iterator<Item = &str> + Clone {
        let others = self.others.iter().flatten().map(String::as_str);
        std::iter::once(&*self.canonical).chain(others)
    }

    /// Whether the path has one reading, as most have.
    pub(in crate::rules) fn has_one_reading(&self) -> bool {
        self.others.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether the path has more readings than a request may have. Then [`readings`](Self::readings) does not
    /// return all of them.
    pub(in crate::rules) fn is_ambiguous(&self) -> bool {
        self.others.is_none()
    }
}

/// Returns the reading of a path that an operator has written: encoded slashes are slashes, and `.` and `..`
/// are resolved. It is one of the readings of the same path in a request.
pub(crate) fn canonical(path: &str) -> Cow<'_, str> {
    canonical_without_query(without_query(path))
}

fn canonical_without_query(path: &str) -> Cow<'_, str> {
    if is_plain(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let plain = plain(path);
    if !plain.contains("%2F") && !plain.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Cow::Owned(plain);
    }
    let mut resolved: Vec<&str> = Vec::new();
    let whole = plain.replace("%2F", "/");
    for segment in whole.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(resolved.pop()),
            segment => resolved.push(segment),
        }
    }
    Cow::Owned(join(resolved.into_iter()))
}

/// Returns the normal form of a path: without a query, a fragment, empty segments, `.`, `..` and needless
/// percent-encoding. Overrides, lists and keys treat all spellings of a path as this one.
///
/// A request may be read in other ways, too, because servers differ: see the endpoints of rules in the guide.
///
/// ```
/// use trypema::rules::normalize_path;
///
/// assert_eq!(normalize_path("//admin/./%73ettings/?tab=1"), "/admin/settings");
/// assert_eq!(normalize_path(""), "/");
/// ```
pub fn normalize_path(path: &str) -> String {
    match &*canonical(path) {
        "" => "/".to_owned(),
        path => encode(path),
    }
}

/// Whether a path has a segment `.` or `..` for any server: also an encoded one (`%2e`), and one between
/// backslashes or encoded slashes. No client sends such a path by itself, so a front end can refuse it.
///
/// ```
/// use trypema::rules::has_dot_segments;
///
/// assert!(["/a/../b", "/a/%2E%2e", "/a%2f..%2fb", r"/a\.\b"].into_iter().all(has_dot_segments));
/// assert!(!has_dot_segments("/.well-known/a..b/c.txt?back=/../"));
/// ```
pub fn has_dot_segments(path: &str) -> bool {
    let mut path = readings::trim(without_query(path)).as_bytes();
    if !path.iter().any(|byte| matches!(byte, b'.' | b'%')) {
        return false;
    }
    // The number of dots in the segment so far; `None` if it has anything else.
    let mut dots = Some(0_usize);
    let is_dot_segment = |dots: Option<usize>| matches!(dots, Some(1 | 2));
    while let [first, rest @ ..] = path {
        let (byte, rest) = match (first, rest) {
            (b'%', [b'2', b'e' | b'E', rest @ ..]) => (b'.', rest),
            (b'%', [b'2', b'f' | b'F', rest @ ..] | [b'5', b'c' | b'C', rest @ ..]) => (b'/', rest),
            (byte, rest) => (*byte, rest),
        };
        match byte {
            b'/' | b'\\' if is_dot_segment(dots) => return true,
            b'/' | b'\\' => dots = Some(0),
            b'.' => dots = dots.map(|count| count + 1),
            byte if readings::is_ignored(byte) => {}
            _ => dots = None,
        }
        path = rest;
    }
    is_dot_segment(dots)
}

/// Whether a path decodes to valid text without NUL. An override cannot name any other path.
pub(in crate::rules) fn is_text(path: &str) -> bool {
    !canonical(path).contains(['\0', char::REPLACEMENT_CHARACTER])
}

/// Percent-encodes the characters that would end a decoded path.
pub(in crate::rules) fn encode(path: &str) -> String {
    path.replace('?', "%3F").replace('#', "%23")
}

/// Returns the segments of a path that is empty or starts with a slash.
pub(in crate::rules) fn segments(path: &str) -> Segments<'_> {
    Segments { rest: path }
}

/// The segments of a path. Segments are short, so comparing each byte is faster than `str::split`, which prepares a search.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Segments<'p> {
    /// Empty, or starts with a slash.
    rest: &'p str,
}

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let below = self.rest.strip_prefix('/')?;
        let end = below.bytes().position(|byte| byte == b'/').unwrap_or(below.len());
        let (segment, rest) = below.split_at(end);
        self.rest = rest;
        Some(segment)
    }
}

/// Returns a path without empty segments and needless percent-encoding.
pub(super) fn plain(path: &str) -> String {
    let segments: Vec<Cow<'_, str>> = path.split('/').map(decode).filter(|text| !text.is_empty()).collect();
    join(segments.iter().map(|segment| &**segment))
}

fn without_query(path: &str) -> &str {
    &path[..path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len())]
}

fn join<'s>(segments: impl Iterator<Item = &'s str>) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    path
}

/// Whether a path has no query and is its only reading. Most are, and then nothing is copied.
fn is_plain(path: &[u8]) -> bool {
    // A path starts with a slash and does not end with one; the root is empty.
    let mut is_after_slash = match path.split_first() {
        None => return true,
        Some((first, _)) if *first != b'/' => return false,
        Some(_) => false,
    };
    for byte in path {
        match byte {
            b'/' | b'.' if is_after_slash => return false,
            b'%' | b'\\' | b'?' | b'#' | 0..=b' ' => return false,
            _ => is_after_slash = *byte == b'/',
        }
    }
    !is_after_slash
}

/// Decodes a segment, except for `/` and `%`, which stay encoded. A `%` without two hexadecimal digits is
/// taken literally and is encoded as well.
fn decode(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let bytes = segment.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(hexadecimal);
        match escaped {
            Some(needed @ (b'/' | b'%')) => {
                plain.extend_from_slice(if needed == b'/' { b"%2F" } else { b"%25" })
            }
            Some(byte) => plain.push(byte),
            None if bytes[at] == b'%' => plain.extend_from_slice(b"%25"),
            None => plain.push(bytes[at]),
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    let value = digits.iter().try_fold(0, |value, byte| Some(value * 16 + digit(byte)?))?;
    u8::try_from(value).ok()
}
