//! Endpoints: the patterns in rules, and the paths of requests.

use std::borrow::Cow;

/// The most segments of a pattern: more than a person writes. It bounds the depth of the index and the work
/// of matching.
const MAX_PATTERN_SEGMENTS: usize = 32;

/// An endpoint pattern of a rule: `/api/search`, `/users/*/posts`, `/api/**` or `POST /login`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointPattern {
    pub(super) method: Option<Box<str>>,
    pub(super) segments: Box<[Segment]>,
    /// Whether the pattern ends in `**`.
    pub(super) is_prefix: bool,
}

/// One segment of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    Exact(Box<str>),
    Any,
}

impl EndpointPattern {
    /// Parses a pattern. The error is the reason why the pattern is invalid.
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
        let is_prefix = texts.pop_if(|last| *last == "**").is_some();
        if texts.len() > MAX_PATTERN_SEGMENTS {
            return Err(format!("{} segments: at most {MAX_PATTERN_SEGMENTS} are allowed", texts.len()));
        }
        let segments = texts.into_iter().map(Segment::parse).collect::<Result<_, _>>()?;
        Ok(Self { method: method.map(Into::into), segments, is_prefix })
    }

    /// Whether a request is for this endpoint. Used to explain a single rule; the index finds all matching
    /// rules at once.
    pub(super) fn matches(&self, method: Option<&str>, path: Option<&Path<'_>>) -> bool {
        let is_method =
            self.method.as_deref().is_none_or(|wanted| methods_of(method).any(|given| given == wanted));
        is_method && path.is_some_and(|path| path.readings().any(|reading| self.matches_path(reading)))
    }

    fn matches_path(&self, path: &str) -> bool {
        let mut given = segments(path);
        let mut matches = |wanted: &Segment| match (wanted, given.next()) {
            (_, None) => false,
            (Segment::Any, Some(_)) => true,
            (Segment::Exact(wanted), Some(given)) => **wanted == *given,
        };
        self.segments.iter().all(&mut matches) && (self.is_prefix || given.next().is_none())
    }
}

/// Returns the methods that a request counts as. A `HEAD` request also counts as `GET`, because a route that
/// serves `GET` serves `HEAD`.
pub(super) fn methods_of(method: Option<&str>) -> impl Iterator<Item = &str> {
    let of_head = method.filter(|method| *method == "HEAD").map(|_| "GET");
    method.into_iter().chain(of_head)
}

impl Segment {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "*" => Ok(Self::Any),
            text if is_placeholder(text) => Ok(Self::Any),
            text if text.starts_with(':') || text.contains(['{', '}']) => {
                Err(format!("segment {text:?} is neither text nor a placeholder: write `*` for any segment"))
            }
            "**" => Err("`**` may only be the last segment".to_owned()),
            "." | ".." => Err(format!("segment {text:?} is resolved before matching, so it never matches")),
            text if text.contains('*') => Err(format!("segment {text:?} has a `*` beside other text")),
            text if text.contains(['?', '#', '%', ' ']) || text.contains(char::is_control) => Err(format!(
                "segment {text:?} has a character that no normalized path contains, so it never matches"
            )),
            text => Ok(Self::Exact(text.into())),
        }
    }
}

/// Whether a segment is a router placeholder such as `{id}`, which matches any segment.
fn is_placeholder(text: &str) -> bool {
    let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    name.is_some_and(|name| !name.is_empty() && !name.contains(['{', '}', '*', ':']))
}

/// A request path, in the one or two ways in which servers read it.
///
/// The plain reading has no query, no empty segments and no needless percent-encoding. In the second reading,
/// encoded slashes are slashes, and `.` and `..` are resolved; it is kept only if it differs from the first.
/// Some servers use one reading and some the other, so a rule applies if either reading matches. A client
/// cannot evade a rule by spelling a path differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path<'a> {
    plain: Cow<'a, str>,
    resolved: Option<String>,
}

impl<'a> Path<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        let path = &path[..path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len())];
        if is_plain(path.as_bytes()) {
            return Self { plain: Cow::Borrowed(path), resolved: None };
        }
        let segments: Vec<Cow<'_, str>> =
            path.split('/').map(decode).filter(|text| !text.is_empty()).collect();
        let plain = join(&segments);
        let mut resolved: Vec<Cow<'_, str>> = Vec::new();
        let whole = plain.replace("%2F", "/");
        for segment in whole.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(resolved.pop()),
                segment => resolved.push(segment.into()),
            }
        }
        let resolved = Some(join(&resolved)).filter(|resolved| *resolved != plain);
        Self { plain: Cow::Owned(plain), resolved }
    }

    /// Returns the reading for counter names: the resolved one, if there are two. Each segment follows a
    /// slash; the root is the empty string.
    pub(super) fn as_str(&self) -> &str {
        self.resolved.as_deref().unwrap_or(&self.plain)
    }

    /// Returns the same path in a form that [`Path::new`] parses back: a `?` or `#` in a segment stays
    /// percent-encoded.
    pub(super) fn to_normal_form(&self) -> String {
        match self.as_str() {
            "" => "/".to_owned(),
            path => encode(path),
        }
    }

    /// Whether the path decodes to valid text without NUL. An override cannot name any other path.
    pub(super) fn is_text(&self) -> bool {
        !self.as_str().contains(['\0', char::REPLACEMENT_CHARACTER])
    }

    /// Returns all readings of the path.
    pub(super) fn readings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.plain).chain(self.resolved.as_deref())
    }
}

/// Returns the normal form of a path: without a query, a fragment, empty segments, `.`, `..` and needless
/// percent-encoding. Rules, overrides and lists treat all spellings of a path as this one.
///
/// ```
/// use trypema::rules::normalize_path;
///
/// assert_eq!(normalize_path("//admin/./%73ettings/?tab=1"), "/admin/settings");
/// assert_eq!(normalize_path(""), "/");
/// ```
pub fn normalize_path(path: &str) -> String {
    Path::new(path).to_normal_form()
}

/// Percent-encodes the characters that would end a decoded path.
pub(super) fn encode(path: &str) -> String {
    path.replace('?', "%3F").replace('#', "%23")
}

/// Returns the segments of a path that is empty or starts with a slash.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    // The part before the first slash is empty.
    path.split('/').skip(1)
}

fn join(segments: &[Cow<'_, str>]) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    path
}

/// Whether a path is already in plain form. Most are, and then nothing is copied.
fn is_plain(path: &[u8]) -> bool {
    let is_odd = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    let ends_well = path.last().is_none_or(|last| *last != b'/');
    path.first().is_none_or(|first| *first == b'/')
        && ends_well
        && !path.contains(&b'%')
        && !path.windows(2).any(is_odd)
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
        assert!(is_match("/users/{id}", "/users/7"));
        let head = EndpointPattern::parse("GET /x").unwrap();
        assert!(head.matches(Some("HEAD"), Some(&Path::new("/x"))), "what serves GET serves HEAD");
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
        assert!(!is_match("/api/search", "/api/search%"));
    }

    #[test]
    fn a_path_is_read_back_as_it_was_read() {
        for (path, normal_form) in [
            ("/admin/", "/admin"),
            ("/", "/"),
            ("", "/"),
            ("admin", "/admin"),
            ("/a%3Fb%23c", "/a%3Fb%23c"),
            ("/a%2fb", "/a/b"),
            ("/100%", "/100%25"),
            ("/100%25", "/100%25"),
            ("/%%341", "/%2541"),
            ("/x/../%C3%A9?q=1", "/é"),
        ] {
            let read = Path::new(path);
            assert_eq!(read.to_normal_form(), normal_form, "{path}");
            assert_eq!(Path::new(normal_form).as_str(), read.as_str(), "{path}");
            assert!(read.is_text(), "{path}");
        }
        assert!(!Path::new("/%ff").is_text() && !Path::new("/%00").is_text());
    }

    #[test]
    fn both_readings_of_a_path_count() {
        // A router that does not resolve `..` takes it for an ordinary segment.
        for path in ["/files/../secret", "/files/%2e%2e/secret", "/files/..%2Fsecret", "/files%2fx"] {
            assert!(is_match("/files/**", path), "{path}");
        }
        assert!(is_match("/secret", "/files/../secret") && is_match("/api/search", "/api%2Fsearch"));
        assert!(is_match("/search/*", "/search/..") && is_match("/search/*", "/search/%2e"));
    }

    #[test]
    fn endless_paths_are_bounded() {
        let long = "/a".repeat(100_000);
        assert_eq!(segments(Path::new(&long).as_str()).count(), 100_000);
        assert!(is_match("/a/**", &long) && !is_match("/a", &long));
        let and_back = format!("/api{}{}/search", "/a".repeat(100), "/..".repeat(100));
        assert!(is_match("/api/search", &and_back));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for pattern in [
            "api", "/a/**/b", "/a*b", "get /x", " /x", "/a/../b", "/a b", "/x?y", "/:id", "/{id", "/{*rest}",
            "/x{y}",
        ] {
            assert!(EndpointPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
