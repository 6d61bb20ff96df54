//! Random paths, compared with readers that others have specified: URLs of the WHATWG standard (the crate `url`)
//! and the dot segments of RFC 3986.

use std::collections::BTreeSet;

use proptest::prelude::*;
use trypema::TrypemaError;
use trypema::rules::{Request, RuleSet, has_dot_segments};
use url::Url;

use crate::engine::{Local, rules};

/// RFC 3986, section 5.2.4, word by word.
fn remove_dot_segments(path: &str) -> String {
    // 1. "The input buffer is initialized with the now-appended path components and the output buffer is
    //    initialized to the empty string."
    let (mut input, mut output) = (path.to_owned(), String::new());
    let remove_last_segment = |output: &mut String| output.truncate(output.rfind('/').unwrap_or(0));
    // 2. "While the input buffer is not empty, loop as follows:"
    while !input.is_empty() {
        // A. "If the input buffer begins with a prefix of "../" or "./", then remove that prefix"
        if let Some(rest) = input.strip_prefix("../").or_else(|| input.strip_prefix("./")) {
            input = rest.to_owned();
        // B. "if the input buffer begins with a prefix of "/./" or "/.", where "." is a complete path segment, then
        //    replace that prefix with "/""
        } else if let Some(rest) = input.strip_prefix("/./") {
            input = format!("/{rest}");
        } else if input == "/." {
            input = "/".to_owned();
        // C. "if the input buffer begins with a prefix of "/../" or "/..", where ".." is a complete path segment,
        //    then replace that prefix with "/" and remove the last segment and its preceding "/" (if any) from the
        //    output buffer"
        } else if let Some(rest) = input.strip_prefix("/../") {
            input = format!("/{rest}");
            remove_last_segment(&mut output);
        } else if input == "/.." {
            input = "/".to_owned();
            remove_last_segment(&mut output);
        // D. "if the input buffer consists only of "." or "..", then remove that from the input buffer"
        } else if input == "." || input == ".." {
            input.clear();
        // E. "move the first path segment in the input buffer to the end of the output buffer, including the
        //    initial "/" character (if any) and any subsequent characters up to, but not including, the next "/"
        //    character or the end of the input buffer."
        } else {
            let end = input[1..].find('/').map_or(input.len(), |end| end + 1);
            output.push_str(&input[..end]);
            input.drain(..end);
        }
    }
    // 3. "the output buffer is returned"
    output
}

/// RFC 3986, section 6.2.2: "decoding any percent-encoded octet that corresponds to an unreserved character"
/// before dot segments are removed. Only dots matter.
fn normalize(path: &str) -> String {
    remove_dot_segments(&path.replace("%2e", ".").replace("%2E", "."))
}

/// Returns the paths that these readers serve for the target of a request.
fn served(target: &str) -> Vec<String> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let concatenated = Url::parse(&format!("http://host{target}")).ok();
    let joined = Url::parse("http://host/base").unwrap().join(target).ok();
    let parsed = [concatenated, joined].into_iter().flatten().map(|url| url.path().to_owned());
    let unescaped = path.replace("%2F", "/").replace("%2f", "/").replace("%5C", "\\").replace("%5c", "\\");
    // Envoy with `path_with_escaped_slashes_action` and `normalize_path`, and with `merge_slashes` after it.
    let unescaped = Url::parse(&format!("http://host{unescaped}")).map(|url| url.path().to_owned());
    let unescaped = unescaped.ok().into_iter();
    let mut merged = path.to_owned();
    while merged.contains("//") {
        merged = merged.replace("//", "/");
    }
    let by_rfc = [path, &*merged].map(remove_dot_segments).into_iter();
    parsed.chain(unescaped).chain(by_rfc).chain([normalize(path), merged.clone()]).collect()
}

fn target() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("/"),
        2 => Just("//"),
        2 => Just("\\"),
        2 => prop_oneof![Just("%2F"), Just("%2f")],
        1 => prop_oneof![Just("%5C"), Just("%5c")],
        3 => Just(".."),
        1 => Just("."),
        1 => prop_oneof![Just("%2e"), Just("%2E%2e"), Just(".%2e")],
        6 => prop_oneof![Just("a"), Just("b"), Just("login")],
        1 => prop_oneof![Just("%61"), Just("é"), Just("%C3%A9"), Just(";v=1"), Just("%"), Just("%25"), Just("%252e")],
        // Neither `:` nor `|`: the crate `url` keeps `/c:/..` for all schemes, as the standard does for files only.
        1 => prop_oneof![Just("\t"), Just(" "), Just("@"), Just("{"), Just("^")],
    ];
    let end = prop_oneof![8 => Just(""), 1 => Just("?q=/../login"), 1 => Just("#/../login")];
    (proptest::collection::vec(piece, 0..9), end)
        .prop_map(|(pieces, end)| format!("/{}{end}", pieces.concat()))
}

/// Returns the counters of a path; `None` if it has too many readings.
fn counters(local: &Local, path: &str) -> Option<BTreeSet<String>> {
    match local.engine.try_check(&Request::new(&[("endpoint", path)])).unwrap() {
        Ok(verdict) => Some(verdict.rules().map(|rule| rule.key.to_owned()).collect()),
        Err(TrypemaError::AmbiguousPath { .. }) => None,
        Err(error) => panic!("{path:?}: {error}"),
    }
}

fn matching(rules: &RuleSet, path: &str) -> BTreeSet<String> {
    let request = [("endpoint", path)];
    rules.matching(&Request::new(&request)).unwrap().map(|rule| rule.id.clone()).collect()
}

const EACH: &str =
    "rules: [{id: each, scope: endpoint, strategy: {fixed_window: {limit: 1000000, window: 1h}}}]";

const SOME: &str = "
rules:
  - {id: a, scope: global, endpoints: [/a], strategy: {fixed_window: {limit: 1000000, window: 1h}}}
  - {id: below-a, scope: global, endpoints: ['/a/**'], strategy: {fixed_window: {limit: 1000000, window: 1h}}}
  - {id: login, scope: global, endpoints: [/login, '/*/login'], strategy: {fixed_window: {limit: 1000000, window: 1h}}}
  - {id: between, scope: global, endpoints: ['/a/*/b'], strategy: {fixed_window: {limit: 1000000, window: 1h}}}
  - {id: root, scope: global, endpoints: [/], strategy: {fixed_window: {limit: 1000000, window: 1h}}}
block: {endpoint: [/b, /a/login]}
allow: {endpoint: [/login/a, /b/login]}
";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever these readers serve is counted, by them and by everyone after them.
    #[test]
    fn what_a_server_reads_is_among_the_readings(target in target()) {
        let local = Local::new(EACH);
        let Some(counted) = counters(&local, &target) else { return Ok(()) };
        prop_assert!((1..=6).contains(&counted.len()));
        for path in served(&target) {
            let wanted = counters(&local, &path);
            prop_assert!(wanted.is_some_and(|wanted| wanted.is_subset(&counted)), "{target:?} is {path:?}: {counted:?}");
        }
    }

    #[test]
    fn rules_and_lists_hold_for_what_a_server_reads(target in target()) {
        let (local, set) = (Local::new(SOME), rules(SOME));
        let Ok(verdict) = local.engine.try_check(&Request::new(&[("endpoint", &target)])).unwrap() else {
            return Ok(());
        };
        let applying = matching(&set, &target);
        for path in served(&target) {
            prop_assert!(matching(&set, &path).is_subset(&applying), "{target:?} is {path:?}");
            let direct = local.check(&[("endpoint", &path)]);
            prop_assert!(direct.is_allowed() || !verdict.is_allowed(), "{path:?} is blocked, but {target:?} is not");
            let is_exempt = verdict.listed_by().is_some() && verdict.is_allowed();
            prop_assert!(!is_exempt || direct.listed_by().is_some(), "{target:?} is exempt, but {path:?} is not");
        }
    }

    /// If none of the readers removes a dot segment, the path has none.
    #[test]
    fn dot_segments_are_those_that_a_server_resolves(target in target()) {
        let removes = |path: &str| path.len() != remove_dot_segments(path).len();
        let path = target.split(['?', '#']).next().unwrap_or_default();
        let slashes = path.replace("%2F", "/").replace("%2f", "/").replace("%5C", "/").replace("%5c", "/");
        let slashes = slashes.replace('\\', "/").replace('\t', "").replace("%2e", ".").replace("%2E", ".");
        prop_assert_eq!(has_dot_segments(&target), removes(slashes.trim_matches(|c| c <= ' ')), "{:?}", target);
    }
}

/// What the standards give as examples.
#[test]
fn the_readers_are_what_they_should_be() {
    for (path, resolved) in [
        ("/a/b/c/./../../g", "/a/g"),
        ("mid/content=5/../6", "mid/6"),
        ("/api//../login", "/api/login"),
        ("/a/..", "/"),
        ("/../x/.", "/x/"),
        ("", ""),
    ] {
        assert_eq!(remove_dot_segments(path), resolved);
    }
    let served = |target| served(target).into_iter().collect::<BTreeSet<_>>();
    assert!(served("//x/login").contains("/login") && served(r"/x\..\api/login").contains("/api/login"));
    assert!(served("/files%2F..%2Fx").contains("/x") && served("/a%2Fb/../api/login").contains("/api/login"));
}
