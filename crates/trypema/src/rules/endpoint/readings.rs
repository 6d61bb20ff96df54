//! The readings of a path: which paths servers may take it for.
//!
//! Proxies and applications take some of the [`STEPS`] below, in any order, before they look for a route. Which
//! ones is unknown here, so every path that they can arrive at is a reading. Each step makes a path shorter or
//! leaves fewer characters to replace, so the steps end.

use super::path::plain;

/// The most readings of a path. Paths that clients send by themselves have one or two; each reading costs a
/// search of the rules, and may cost a counter of each rule that counts by endpoint.
pub(in crate::rules) const MAX_READINGS: usize = 6;

/// The most spellings that the steps may arrive at. Several spellings can be one reading (`/a//b` and `/a/b`), so this
/// bounds the work on a path that was made to have many.
const MAX_SPELLINGS: usize = 32;

/// The longest path that may have several readings. Each step copies a path, so this bounds the work on a path that
/// was made to be slow. Long paths that clients send by themselves have texts or names in them, and one reading.
const MAX_ODD_PATH: usize = 2 * 1024;

/// A step of a server. Returns `None` if it changes nothing.
type Step = fn(&str) -> Option<String>;

const STEPS: [Step; 8] = [
    remove_ignored,
    |path| path.contains('\\').then(|| path.replace('\\', "/")),
    |path| decode_as_slash(path, *b"5c").map(|path| path.replace('\\', "/")),
    |path| decode_as_slash(path, *b"2f"),
    merge_slashes,
    |path| resolve(path, literal_dots),
    |path| resolve(path, encoded_dots),
    drop_authority,
];

/// Whether a path, which has no query, certainly has only one reading. Otherwise it may still have only one.
pub(super) fn are_certainly_one(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is_odd = |(at, byte): (usize, &u8)| match byte {
        b'\\' | 0..=b' ' => true,
        b'%' => {
            let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
            [b"2e", b"2f", b"5c"].iter().any(|odd| digits.eq_ignore_ascii_case(*odd))
        }
        b'.' => at == 0 || bytes[at - 1] == b'/',
        _ => false,
    };
    !path.starts_with("//") && !bytes.iter().enumerate().any(is_odd)
}

/// Returns the readings of a path, which has no query, except for its canonical one. `None` if there are too
/// many, or if the path is too long to find out.
pub(super) fn others(path: &str, canonical: &str) -> Option<Vec<String>> {
    if path.len() > MAX_ODD_PATH {
        return None;
    }
    let mut found = Found { canonical, others: Vec::new(), spellings: Vec::new() };
    found.add(path.to_owned())?;
    let mut next = 0;
    while let Some(spelling) = found.spellings.get(next).cloned() {
        for step in STEPS {
            if let Some(further) = step(&spelling) {
                found.add(further)?;
            }
        }
        next += 1;
    }
    Some(found.others)
}

/// What the steps have arrived at so far.
struct Found<'a> {
    canonical: &'a str,
    /// The readings except for the canonical one.
    others: Vec<String>,
    spellings: Vec<String>,
}

impl Found<'_> {
    /// Adds a spelling and its reading, if they are new. Returns `None` once there are too many.
    fn add(&mut self, spelling: String) -> Option<()> {
        if self.spellings.contains(&spelling) {
            return Some(());
        }
        let reading = plain(&spelling);
        if reading != self.canonical && !self.others.contains(&reading) {
            self.others.push(reading);
        }
        self.spellings.push(spelling);
        (self.others.len() < MAX_READINGS && self.spellings.len() <= MAX_SPELLINGS).then_some(())
    }
}

/// Returns a path without the characters around it that URL parsers of the WHATWG standard ignore.
pub(super) fn trim(path: &str) -> &str {
    path.trim_matches(|character| character <= ' ')
}

/// Whether these URL parsers ignore a byte wherever it is.
pub(super) fn is_ignored(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r')
}

fn remove_ignored(path: &str) -> Option<String> {
    let is_kept = |character: &char| !matches!(character, '\t' | '\n' | '\r');
    let trimmed = trim(path);
    let is_changed = trimmed.len() < path.len() || trimmed.bytes().any(is_ignored);
    is_changed.then(|| trimmed.chars().filter(is_kept).collect())
}

/// Replaces the percent-encoding of a byte, given as lower-case digits, with a slash.
fn decode_as_slash(path: &str, [first, second]: [u8; 2]) -> Option<String> {
    let mut decoded = String::new();
    let mut rest = path;
    let is_wanted = |digits: &[u8]| matches!(digits, [high, low, ..] if *high == first && low.to_ascii_lowercase() == second);
    while let Some(at) =
        rest.match_indices('%').map(|(at, _)| at).find(|at| is_wanted(&rest.as_bytes()[at + 1..]))
    {
        decoded.push_str(&rest[..at]);
        decoded.push('/');
        rest = &rest[at + 3..];
    }
    (rest.len() < path.len()).then(|| decoded + rest)
}

/// Drops empty segments, except for a last one.
fn merge_slashes(path: &str) -> Option<String> {
    if !path.contains("//") {
        return None;
    }
    let mut merged = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !merged.ends_with('/') {
            merged.push(character);
        }
    }
    Some(merged)
}

/// Removes dot segments as RFC 3986, section 5.2.4 does. Empty segments are segments: `/a//..` is `/a/`. `dots` returns the
/// number of dots of a dot segment.
fn resolve(path: &str, dots: fn(&str) -> Option<usize>) -> Option<String> {
    if !path.split('/').any(|segment| dots(segment).is_some()) {
        return None;
    }
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    let mut resolved = Vec::new();
    while let Some(segment) = segments.next() {
        match dots(segment) {
            None => resolved.push(segment),
            Some(count) => {
                if count == 2 {
                    resolved.pop();
                }
                if segments.peek().is_none() {
                    resolved.push("");
                }
            }
        }
    }
    Some("/".to_owned() + &resolved.join("/"))
}

fn literal_dots(segment: &str) -> Option<usize> {
    matches!(segment, "." | "..").then_some(segment.len())
}

/// The same with `%2e` as a dot, as in the WHATWG standard.
fn encoded_dots(segment: &str) -> Option<usize> {
    let (mut rest, mut count) = (segment.as_bytes(), 0);
    while let [b'.', after @ ..] | [b'%', b'2', b'e' | b'E', after @ ..] = rest {
        (rest, count) = (after, count + 1);
    }
    (rest.is_empty() && matches!(count, 1 | 2)).then_some(count)
}

/// Removes the authority of a path that starts with two slashes, as applications do that resolve the target of
/// a request against their own address, such as `new URL(request.url, base)` in Node: `//host/login` is
/// `/login`.
fn drop_authority(path: &str) -> Option<String> {
    let authority = path.strip_prefix("//")?.trim_start_matches('/');
    let end = authority.find('/').unwrap_or(authority.len());
    // What only has slashes is the root anyway.
    (!authority.is_empty()).then(|| match &authority[end..] {
        "" => "/".to_owned(),
        path => path.to_owned(),
    })
}
