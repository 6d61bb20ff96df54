//! Limits per session, by cookie: the samples, and attacks on them.

use serde_json::Value;

use crate::client::Reply;
use crate::proxy::{Kind, Sample, Setup, Site, Undecided, service_with_sample_profiles};

with_each_proxy! {
    each_session_has_its_own_limit
    a_session_has_one_spelling
    cookies_carry_no_parameters
    braces_hide_no_session
    clients_cannot_name_a_session_by_header
    paths_of_clients_choose_no_profile
    large_cookies_are_no_way_past_a_limit
}

const THREE_PER_SESSION: &str = "
rules:
  - {id: per-session, scope: user, key_pattern: '{session}', strategy: {absolute: {limit: 3, window: 1h}}}
";

/// The limit of the reproduction in issue 14.
const TWELVE_PER_SESSION: &str = "
rules:
  - {id: per-session, scope: user, key_pattern: '{session}', strategy: {absolute: {limit: 12, window: 1h}}}
";

fn with_cookie(site: &Site, cookie: &str) -> Reply {
    site.client().send("GET", "/", &[("Cookie", cookie)], "")
}

/// Starts a site whose session `alice` is at its limit.
fn site_with_alice_at_her_limit(kind: Kind) -> Site {
    let site = Site::of_sample(kind, Sample::Session, THREE_PER_SESSION);
    let statuses = [(); 4].map(|()| with_cookie(&site, "theme=dark; sid=alice; a=b").status);
    assert_eq!(statuses, [200, 200, 200, 429], "{}", site.log());
    site
}

fn each_session_has_its_own_limit(kind: Kind) {
    let site = site_with_alice_at_her_limit(kind);
    assert_eq!(with_cookie(&site, "sid=alice").status, 429, "wherever the cookie stands");
    assert_eq!(with_cookie(&site, "sid=bob").status, 200);
    for cookie in ["", "sid=", "other=1", "nosid=alice", "sid2=alice", "my.sid=alice"] {
        let reply = with_cookie(&site, cookie);
        assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "{cookie:?} is no session");
    }
}

/// The application may read any of these as `alice`, or as another session than the proxy does.
fn a_session_has_one_spelling(kind: Kind) {
    let site = site_with_alice_at_her_limit(kind);
    for cookie in [
        "sid=junk; sid=alice",
        "sid=alice; sid=junk",
        "SID=junk; sid=alice",
        "Sid=alice",
        "sid=junk;sid=alice",
        "sid=junk; a=b; sid=alice",
        "sid =alice",
        "sid= alice",
        "a=b;  sid=alice",
        "a=b;\tsid=alice",
        "sid=\"alice\"",
        "a=\"; sid=alice\"",
        "sid=%61lice",
        "sid=alice%00",
        "sid=alice,sid=junk",
        "a=b, sid=alice",
        "a=b,sid=alice",
    ] {
        let status = with_cookie(&site, cookie).status;
        assert!([400, 429].contains(&status), "{cookie:?} is {status}");
    }
    for cookies in [["sid=junk", "sid=alice"], ["sid=alice", "sid=junk"], ["a=b", "sid=alice"]] {
        let lines = cookies.map(|cookie| ("Cookie", cookie));
        let status = site.client().send("GET", "/", &lines, "").status;
        assert!([400, 429].contains(&status), "{cookies:?} is {status}");
    }
    assert_eq!(site.application.asked(), 3);
}

/// The reproduction of issue 14: `Cookie: sid=s2&cost=0` let 14 of 14 requests pass a limit of 12.
fn cookies_carry_no_parameters(kind: Kind) {
    let site = Site::of_sample(kind, Sample::Session, TWELVE_PER_SESSION);
    for cookie in [
        "sid=s2&cost=0",
        "sid=s2?cost=0",
        "sid=s2%26cost=0",
        "sid=s2%3Fcost=0",
        "sid=s2#",
        "sid=s2/default",
        "sid=s2/../default",
        "sid=../../check",
        "sid=s2;cost=0&deny_status=200",
    ] {
        let passed = (0..14).filter(|_| with_cookie(&site, cookie).status == 200).count();
        assert!(passed <= 12, "{cookie}: {passed} of 14 passed");
    }
    // A line end in a value begins a new header, or makes the request invalid.
    for line_end in ["\r\n", "\n", "\r", "\r\n "] {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nCookie: sid=s3{line_end}X-Session: s4\r\n\r\n");
        for _ in 0..14 {
            let mut client = site.client();
            client.write(head.as_bytes()).unwrap();
            client.read();
        }
    }
    let mut clean = [(); 14].map(|()| with_cookie(&site, "sid=s4").status);
    clean.sort_unstable();
    assert_eq!(clean, [[200; 12].as_slice(), &[429; 2]].concat()[..], "nobody spent for s4");
}

/// Caddy 2.7.5 to 2.11.1 expands placeholders in the cookie (CVE-2026-30852): it would see `x=`, and the
/// application `alice`.
fn braces_hide_no_session(kind: Kind) {
    let site = site_with_alice_at_her_limit(kind);
    for cookie in [
        "x={; sid=alice;}",
        "x={; sid=alice; y=}",
        "sid={env.HOME}",
        "x={http.vars.a}; sid=alice",
        "}sid=alice",
    ] {
        let status = with_cookie(&site, cookie).status;
        match kind {
            Kind::Caddy => assert_eq!(status, 400, "{cookie:?}"),
            // nginx treats braces like any other character.
            Kind::Nginx => {
                assert!([400, 429].contains(&status) || cookie.starts_with('}'), "{cookie:?} is {status}")
            }
        }
    }
    let lines = [("Cookie", "x={"), ("Cookie", "sid=alice"), ("Cookie", "y=}")];
    let status = site.client().send("GET", "/", &lines, "").status;
    assert!([400, 429].contains(&status), "in three lines: {status}");
}

fn clients_cannot_name_a_session_by_header(kind: Kind) {
    let site = site_with_alice_at_her_limit(kind);
    let mut client = site.client();
    for name in ["X-Session", "x-session", "X_Session", "X-SESSION"] {
        for headers in [
            vec![("Cookie", "sid=alice"), (name, "fresh")],
            vec![(name, "fresh"), ("Cookie", "sid=alice")],
            vec![(name, "fresh"), (name, "fresher"), ("Cookie", "sid=alice")],
        ] {
            assert_eq!(client.send("GET", "/", &headers, "").status, 429, "{headers:?}");
        }
        // A proxy removes headers that `Connection` lists, but not those that it sets itself.
        for listed in [name.to_owned(), format!("close, {name}"), format!("{name}, Cookie, keep-alive")] {
            let headers = [("Cookie", "sid=alice"), ("Connection", listed.as_str())];
            let status = site.client().send("GET", "/", &headers, "").status;
            assert_eq!(status, 429, "Connection: {listed}");
        }
        // A client without a session cannot spend the units of another session.
        for headers in [vec![(name, "victim")], vec![(name, "victim"), (name, "victim")]] {
            let reply = client.send("GET", "/", &headers, "");
            assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "{headers:?}");
        }
    }
    let victim = [(); 4].map(|()| with_cookie(&site, "sid=victim").status);
    assert_eq!(victim, [200, 200, 200, 429]);
}

/// Other profiles do not count sessions, so a client that could choose one would have no limit.
fn paths_of_clients_choose_no_profile(kind: Kind) {
    let site = site_with_alice_at_her_limit(kind);
    for path in [
        "/v1/forward-auth/default",
        "/v1/forward-auth/nginx?x",
        "/default",
        "/?profile=default&cost=0",
        "/..%2Fdefault",
        "/x#/v1/forward-auth/default",
        "/?#",
        "//v1/forward-auth/default",
        "/_trypema",
        "/_trypema/../default",
    ] {
        let reply = site.client().send("GET", path, &[("Cookie", "sid=alice")], "");
        assert!([400, 404, 429].contains(&reply.status), "{path} is {}", reply.status);
    }
    assert_eq!(site.application.asked(), 3);
}

fn large_cookies_are_no_way_past_a_limit(kind: Kind) {
    let site = site_with_alice_at_her_limit(kind);
    for length in [129, 2_000, 7_000, 9_000, 40_000, 200_000] {
        let filler = "a".repeat(length);
        for cookie in [
            format!("sid={filler}"),
            format!("filler={filler}; sid=alice"),
            format!("sid=alice; sid={filler}"),
        ] {
            let mut client = site.client();
            // The proxy may close the connection before it has read the whole header.
            let _ = client.write(format!("GET / HTTP/1.1\r\nhost: a\r\ncookie: {cookie}\r\n\r\n").as_bytes());
            let status = client.read().map(|reply| reply.status);
            assert!(matches!(status, None | Some(400 | 414 | 429 | 431)), "{length} bytes: {status:?}");
        }
    }
    assert_eq!(site.application.asked(), 3);
}

/// Starts a site with a mistake that an operator might make: it uses the raw cookie instead of the sample's
/// checked one.
fn careless_nginx(path: &'static str) -> Site {
    let edits = vec![
        ("if ($session_is_ambiguous)", "if ($never)"),
        ("proxy_set_header X-Session $session;", "proxy_set_header X-Session $cookie_sid;"),
        (
            "map $http_cookie $session_is_ambiguous {",
            "map $host $never { default 0; }\nmap $http_cookie $session_is_ambiguous {",
        ),
        ("http://trypema/v1/forward-auth/nginx-session;", path),
    ];
    let service = service_with_sample_profiles(TWELVE_PER_SESSION);
    Site::of(Setup {
        kind: Kind::Nginx,
        sample: Sample::Session,
        undecided: Undecided::Passes,
        service,
        edits,
    })
}

#[test]
fn a_raw_cookie_is_a_value_and_no_parameter() {
    let site = careless_nginx("http://trypema/v1/forward-auth/nginx-session;");
    let statuses: Vec<u16> = (0..14).map(|_| with_cookie(&site, "sid=s2&cost=0").status).collect();
    assert_eq!(statuses, [[200; 12].as_slice(), &[429; 2]].concat());
}

/// The configuration of the reproduction. No request passes, even if the proxy lets requests pass while the
/// limiter is unreachable.
#[test]
fn a_cookie_in_the_path_is_refused() {
    for path in [
        "http://trypema/v1/forward-auth/nginx-session&user=$cookie_sid;",
        "http://trypema/v1/forward-auth/deny_status=401&user=$cookie_sid;",
        "http://trypema/v1/forward-auth/nginx-session?user=$cookie_sid;",
        "http://trypema/v1/forward-auth/nginx-session/$cookie_sid;",
    ] {
        let site = careless_nginx(path);
        for cookie in ["sid=s2&cost=0", "sid=s2", "sid=s2?", "sid=%2e%2e"] {
            let reply = with_cookie(&site, cookie);
            assert_eq!(reply.status, 503, "{path} {cookie}: {reply:?}");
        }
        assert_eq!(site.application.asked(), 0);
    }
}

/// Asserts that the application receives the cookies unchanged.
#[test]
fn the_application_gets_the_cookies_as_they_were() {
    for kind in [Kind::Nginx, Kind::Caddy] {
        let site = Site::of_sample(kind, Sample::Session, THREE_PER_SESSION);
        let reply: Value = with_cookie(&site, "theme=dark; sid=alice; a=b").json();
        assert_eq!(reply["headers"]["cookie"], "theme=dark; sid=alice; a=b", "{kind:?}");
    }
}
