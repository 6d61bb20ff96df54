//! Endpoints: the patterns in rules, and the paths and methods of requests.

mod path;
mod readings;

use std::borrow::Cow;

pub(crate) use path::canonical;
pub(super) use path::{Path, encode, is_text, segments};
pub use path::{has_dot_segments, normalize_path};
pub(super) use readings::MAX_READINGS;

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
    /// rules at once. The method is in [upper case](upper_case_method).
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

/// Returns the form in which rules compare a method. Methods differ by case, but some applications serve
/// `post` as `POST`.
pub(super) fn upper_case_method(method: &str) -> Cow<'_, str> {
    match is_upper_case(method) {
        true => Cow::Borrowed(method),
        false => Cow::Owned(method.to_ascii_uppercase()),
    }
}

/// Whether a method is written in the form in which rules compare it.
pub(super) fn is_upper_case(method: &str) -> bool {
    !method.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Returns the methods that a request counts as, given its method in upper case. A `HEAD` request also counts
/// as `GET`, because a route that serves `GET` serves `HEAD`.
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

    fn readings(path: &str) -> Vec<String> {
        let path = Path::new(path);
        assert!(!path.is_ambiguous());
        path.readings().map(str::to_owned).collect()
    }

    #[test]
    fn a_path_has_the_readings_of_its_servers() {
        for (path, expected) in [
            ("/login", &["/login"][..]),
            ("", &[""]),
            ("/", &[""]),
            ("//", &[""]),
            ("/a//b/", &["/a/b"]),
            ("/.well-known/%61..b/c.txt", &["/.well-known/a..b/c.txt"]),
            ("/caf%C3%A9;v=1/x%20y", &["/café;v=1/x y"]),
            ("/api//../login", &["/login", "/api/../login", "/api/login"]),
            (
                "/a%2Fb/../api/login",
                &["/a/api/login", "/a%2Fb/../api/login", "/a/b/../api/login", "/api/login"],
            ),
            (r"/x\..\api/login", &[r"/x\..\api/login", "/x/../api/login", "/api/login"]),
            ("/admin//..", &["", "/admin/..", "/admin"]),
            ("/files%2F..%2Fx", &["/x", "/files%2F..%2Fx", "/files/../x"]),
            (r"/a%5cb", &[r"/a\b", "/a/b"]),
            ("//x/login", &["/x/login", "/login"]),
            (r"/\x/login", &[r"/\x/login", "/x/login", "/login"]),
            ("/a/.\t./login", &["/a/.\t./login", "/a/../login", "/login"]),
            ("/login ", &["/login ", "/login"]),
            ("/x/%2e%2e/../y", &["/y", "/x/../../y", "/x/y"]),
        ] {
            let mut readings = readings(path);
            assert_eq!(readings[0], canonical(path), "{path}");
            let mut expected = expected.to_vec();
            readings.sort();
            expected.sort();
            assert_eq!(readings, expected, "{path}");
        }
        assert!(Path::new("/a%2Fb//../c\\d").is_ambiguous());
        assert!(Path::new(&"/%2e%2e//a\\%5c".repeat(1_000)).is_ambiguous());
        // However odd it is, a long path costs little.
        let odd = |len: usize| format!("//{}", "a".repeat(len - 2));
        assert!(!Path::new(&odd(2_048)).is_ambiguous() && Path::new(&odd(2_049)).is_ambiguous());
        assert_eq!(readings(&format!("/{}?{}", "a".repeat(10_000), "/".repeat(10_000))).len(), 1);
        // Many spellings, but one reading.
        assert_eq!(readings(&("/a".to_owned() + &"//".repeat(1_000) + "b")), ["/a/b"]);
        assert_eq!(readings(&"/%61b/".repeat(1_000)).len(), 1);
    }

    #[test]
    fn dot_segments_are_found_wherever_a_server_sees_them() {
        for path in [
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/a/%2e",
            "/a/%2E./b",
            "/a%2f..",
            "/a%5C%2e%2E%5cb",
            r"/a\..\b",
            "..",
            "/a/..?q",
            "/a/.. ",
            "/a/.\t.\n/b",
            "/..//",
        ] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in [
            "",
            "/",
            "//",
            "/...",
            "/a..",
            "/..a/b",
            "/.well-known",
            "/a.b/c.txt",
            "/%2e%2e%2e",
            "/a?/../",
            "/%252e%252e/x",
            "/..;/x",
            "/.%2",
            "/%2",
        ] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }

    #[test]
    fn methods_are_compared_in_upper_case() {
        for (given, upper) in
            [("GET", "GET"), ("get", "GET"), ("PoSt", "POST"), ("", ""), ("m-search", "M-SEARCH")]
        {
            assert_eq!(upper_case_method(given), upper);
            assert_eq!(is_upper_case(given), given == upper);
        }
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
            assert_eq!(normalize_path(path), normal_form, "{path}");
            assert_eq!(canonical(normal_form), canonical(path), "{path}");
            assert!(is_text(path), "{path}");
        }
        assert!(!is_text("/%ff") && !is_text("/%00"));
    }

    #[test]
    fn all_readings_of_a_path_count() {
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
        assert_eq!(segments(&canonical(&long)).count(), 100_000);
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
