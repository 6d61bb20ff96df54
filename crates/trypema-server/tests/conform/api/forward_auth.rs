//! `/v1/forward-auth`: requests from a reverse proxy.

use serde_json::json;

use super::{problem, user};
use crate::client::{Client, Reply};
use crate::in_process::InProcess;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: per-address, scope: ip, endpoints: [/by-address], strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: logins, scope: global, endpoints: [POST /login], strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: hosts, scope: tenant, key_pattern: '{host}', strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: free, scope: tenant, key_pattern: '{tenant}', plan_tiers: [free], strategy: {fixed_window: {limit: 2, window: 1h}}}
";

const SETTINGS: &str = "
forward_auth:
  profiles:
    default: {attributes: {user: {header: X-User}, tenant: {header: x-tenant}}}
    double: {attributes: {user: {header: X-User}}, cost: 2}
    unauthorized: {attributes: {user: {header: X-User}}, deny_status: 401}
    forbidden: {attributes: {user: {header: X-User}}, deny_status: 403}
    common: {attributes: {user: {header: X-User}}, headers: x-ratelimit}
    silent: {attributes: {user: {header: X-User}}, headers: none}
    literal: {attributes: {user: {value: bob}, plan: {value: free}, tenant: {value: 'acme| x'}}}
    fixed: {attributes: {endpoint: {value: /login}, method: {value: POST}, ip: {value: 198.51.100.1}}}
    texts: {attributes: {user: X-User, plan: free, tenant: 7}}
    listed: {attributes: [user=X-User, plan=free, {name: tenant, value: acme}]}
    nowhere: {attributes: {user: {header: X-User}, ip: null, host: null}}
    dots: {dot_segments: accept}
    dots-unauthorized: {dot_segments: accept, deny_status: 401}
    dots-refused: {dot_segments: refuse, deny_status: 403}
    dots-literal: {attributes: {endpoint: {value: /x/../login}, method: {value: POST}}}
    elsewhere: {attributes: {endpoint: {header: X-Original-Url}, method: {header: X-Original-Method}, ip: {header: X-Real-Ip}}}
";

fn service() -> InProcess {
    InProcess::start(SETTINGS).ruled_by(RULES)
}

/// The address of a client without earlier requests.
const SOMEBODY: (&str, &str) = ("x-forwarded-for", "203.0.113.200");

/// Sends a request as a proxy does, for the client `SOMEBODY` unless `headers` name one. `profile` is the
/// rest of the path after `/v1/forward-auth`.
fn ask(client: &mut Client, profile: &str, headers: &[(&str, &str)]) -> Reply {
    let is_said = headers.iter().any(|(name, _)| *name == "x-forwarded-for");
    let more = if is_said { &[][..] } else { &[SOMEBODY] };
    client.send("GET", &format!("/v1/forward-auth{profile}"), &[headers, more].concat(), "")
}

/// Returns the remaining units of a counter.
fn left(client: &mut Client, key: &str) -> u64 {
    let path = format!("/v1/keys/{}", key.replace('|', "%7C"));
    client.send("GET", &path, &[], "").json()["remaining"].as_u64().unwrap()
}

const ANY: (&str, &str) = ("x-forwarded-uri", "/");

#[test]
fn what_is_allowed_is_an_empty_200_with_what_is_left() {
    let service = service();
    let mut client = service.client();
    let reply = ask(&mut client, "", &[ANY, ("x-user", "ann")]);
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("ratelimit"), Some(r#""per-user";r=1;t=2000"#));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""per-user";q=2;w=3600"#));
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn what_is_denied_is_429_or_what_the_proxy_understands() {
    let service = service();
    let mut client = service.client();
    let ann = [ANY, ("x-user", "ann")];
    ask(&mut client, "/double", &ann);
    for (profile, status) in [("", 429), ("/default", 429), ("/unauthorized", 401), ("/forbidden", 403)] {
        let reply = ask(&mut client, profile, &ann);
        problem(&reply, status);
        assert_eq!(reply.header("retry-after"), Some("2000"));
        assert_eq!(reply.header("ratelimit"), Some(r#""per-user";r=0;t=2000"#));
        assert_eq!(reply.json()["violated-policies"], json!(["per-user"]));
    }
    let other = ask(&mut client, "/common", &ann);
    assert_eq!((other.header("x-ratelimit-remaining"), other.header("ratelimit")), (Some("0"), None));
    let none = ask(&mut client, "/silent", &ann);
    assert_eq!((none.header("retry-after"), none.header("ratelimit")), (Some("2000"), None));
}

/// `auth_request` drops the body. A proxy that passes the answer on would pass the header on, too.
#[test]
fn the_problem_of_a_denial_is_in_a_header_for_auth_request() {
    let service = service();
    let mut client = service.client();
    let ann = [ANY, ("x-user", "ann")];
    ask(&mut client, "/double", &ann);
    let body = ask(&mut client, "", &ann).body;
    for (profile, problem) in [("/unauthorized", Some(&*body)), ("/forbidden", Some(&*body)), ("", None)] {
        let reply = ask(&mut client, profile, &ann);
        assert_eq!(reply.header("trypema-problem"), problem, "{profile}");
    }
    assert_eq!(ask(&mut client, "/unauthorized", &[ANY]).header("trypema-problem"), None);
}

/// An operator's block is 403, also for nginx: 401 would be a limit.
#[test]
fn a_blocked_client_gets_403_unless_another_status_is_chosen() {
    let service = InProcess::start(&format!("{SETTINGS}    hidden: {{deny_status: 404}}\n"))
        .ruled_by("block: {ip: [203.0.113.200]}\nrules: []");
    let mut client = service.client();
    for (profile, status) in [("", 403), ("/nginx", 403), ("/unauthorized", 403), ("/hidden", 404)] {
        let reply = ask(&mut client, profile, &[ANY]);
        assert_eq!(problem(&reply, status), "An operator blocked this client.", "{profile}");
    }
}

/// Without configuration there are two profiles. Neither reads headers besides those of the forwarded
/// request.
#[test]
fn profiles_are_built_in() {
    let rules = "rules: [{id: all, scope: global, strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let service = InProcess::with_rules(rules);
    let mut client = service.client();
    assert_eq!(ask(&mut client, "", &[ANY]).status, 200);
    for (profile, status) in [("", 429), ("/default", 429), ("/nginx", 401)] {
        let reply = ask(&mut client, profile, &[ANY]);
        problem(&reply, status);
        assert!(reply.header("ratelimit").is_some(), "{profile}: {reply:?}");
    }
    let configured =
        InProcess::start("forward_auth: {profiles: {nginx: {deny_status: 403}}}").ruled_by(rules);
    let mut client = configured.client();
    let statuses = ["", "", "/nginx"].map(|profile| ask(&mut client, profile, &[ANY]).status);
    assert_eq!(statuses, [200, 429, 403], "a configured profile replaces the built-in one, and only that");
}

/// The server cannot tell a client's text in the path from the proxy's, so it accepts only the name of a
/// profile there.
#[test]
fn anything_else_in_the_path_is_refused_and_spends_nothing() {
    let service = service();
    let mut client = service.client();
    let ann = [ANY, ("x-user", "ann")];
    for path in [
        "/",
        "//",
        "/default/",
        "/default/x",
        "/default/../silent",
        "/../check",
        "/deny_status=401",
        "/default&cost=0",
        "/default;cost=0",
        "/default&user=boss",
        "/cost=0",
        "/Default",
        "/DEFAULT",
        "/d%65fault",
        "/default%00",
        "/default%26cost=0",
        "/default%3Fcost=0",
        "/default%2Fx",
        "/default+",
        "/*",
        "/d\u{e9}faut",
        &format!("/{}", "a".repeat(65)),
    ] {
        let detail = problem(&ask(&mut client, path, &ann), 400);
        assert!(detail.contains("/v1/forward-auth/PROFILE and nothing more"), "{path}: {detail}");
    }
    for path in ["/nobody", "/-", "/__proto__", "/401", &format!("/{}", "a".repeat(64))] {
        let detail = problem(&ask(&mut client, path, &ann), 400);
        assert!(detail.contains("unknown profile"), "{path}: {detail}");
    }
    for path in ["?", "?cost=0", "/default?", "/default?user=boss&cost=0", "/default?%zz", "/nobody?x"] {
        let detail = problem(&ask(&mut client, path, &ann), 400);
        assert!(detail.contains("takes no query"), "{path}: {detail}");
    }
    assert_eq!((left(&mut client, "per-user|user=ann"), left(&mut client, "per-user|user=boss")), (2, 2));
}

/// Every byte of a header's value is part of the value.
#[test]
fn values_are_never_parameters() {
    let service = service();
    let mut client = service.client();
    for (value, key) in [
        ("eve&cost=0", "eve&cost=0"),
        ("eve?cost=0", "eve?cost=0"),
        ("eve%26cost=0", "eve%26cost=0"),
        ("eve#", "eve#"),
        ("eve/default", "eve/default"),
        ("eve;user=bob", "eve;user=bob"),
        ("eve, bob", "eve, bob"),
    ] {
        let statuses = [(); 4].map(|()| ask(&mut client, "", &[ANY, ("x-user", value)]).status);
        assert_eq!(statuses, [200, 200, 429, 429], "{key} is a user like any other");
    }
    assert_eq!(left(&mut client, "per-user|user=eve"), 2);
}

#[test]
fn attribute_headers_have_exactly_one_name() {
    let service = service();
    let mut client = service.client();
    for name in ["X_User", "X-User-", "X-Users", "User", "X-Forwarded-User"] {
        ask(&mut client, "", &[ANY, (name, "ann")]);
    }
    assert_eq!(left(&mut client, "per-user|user=ann"), 2, "none of them is X-User");
    ask(&mut client, "", &[ANY, ("X-USER", "ann"), ("X_User", "bob")]);
    assert_eq!(left(&mut client, "per-user|user=ann"), 1, "letters of any case are");
    assert_eq!(left(&mut client, "per-user|user=bob"), 2);
}

#[test]
fn an_empty_value_is_a_missing_one() {
    let service = service();
    let mut client = service.client();
    for value in ["", " ", "\t "] {
        for _ in 0..3 {
            let reply = ask(&mut client, "", &[ANY, ("x-user", value)]);
            assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "no rule applies");
        }
    }
    problem(&ask(&mut client, "", &[ANY, ("x-user", ""), ("x-user", "ann")]), 400);
    problem(&ask(&mut client, "", &[("x-forwarded-uri", "")]), 400);
}

#[test]
fn values_that_cannot_be_told_apart_or_are_too_long_are_refused() {
    let service = service();
    let mut client = service.client();
    let head = "GET /v1/forward-auth HTTP/1.1\r\nhost: a\r\nx-forwarded-uri: /\r\nx-forwarded-for: 203.0.113.1\r\nx-user: ";
    client.write(&[head.as_bytes(), b"a\xff\xfe\r\n\r\n"].concat()).unwrap();
    assert!(problem(&client.read().unwrap(), 400).contains("x-user is not UTF-8"));
    let (longest, longer) = ("a".repeat(8 * 1024), "a".repeat(8 * 1024 + 1));
    assert_eq!(ask(&mut client, "", &[ANY, ("x-user", &longest)]).status, 200);
    let detail = problem(&ask(&mut client, "", &[ANY, ("x-user", &longer)]), 400);
    assert!(detail.contains("\"user\" is longer than 8192 bytes"), "{detail}");
    let long_path = format!("/{longer}");
    problem(&ask(&mut client, "", &[("x-forwarded-uri", &long_path)]), 400);
    let long_query = format!("/?{longer}");
    assert_eq!(ask(&mut client, "", &[("x-forwarded-uri", &long_query)]).status, 200, "only its path counts");
}

#[test]
fn the_proxy_says_which_request_it_is() {
    let service = service();
    let mut client = service.client();
    ask(&mut client, "", &[("x-forwarded-uri", "/login?user=x#y"), ("x-forwarded-method", "POST")]);
    assert_eq!(left(&mut client, "logins"), 1, "the path without what follows it");
    ask(&mut client, "", &[("x-forwarded-uri", "/login"), ("x-forwarded-method", "GET")]);
    assert_eq!(left(&mut client, "logins"), 1, "another method");
    client.send("POST", "/v1/forward-auth", &[("x-forwarded-uri", "/login"), SOMEBODY], "");
    assert_eq!(left(&mut client, "logins"), 0, "without the header, the method of the question itself");
    ask(&mut client, "", &[ANY, ("x-forwarded-host", "shop.example")]);
    assert_eq!(left(&mut client, "hosts|host=shop.example"), 1);
    ask(&mut client, "", &[ANY, ("x-forwarded-host", "SHOP.example.:8443")]);
    assert_eq!(left(&mut client, "hosts|host=shop.example"), 0, "the same host, however it is written");
}

#[test]
fn a_request_may_be_told_with_its_host() {
    let service = service();
    let mut client = service.client();
    let post = ("x-forwarded-method", "POST");
    ask(&mut client, "", &[("x-forwarded-uri", "https://shop.example/login?next=/"), post]);
    assert_eq!(left(&mut client, "logins"), 1);
    for nonsense in ["login", "", "?x"] {
        problem(&ask(&mut client, "", &[("x-forwarded-uri", nonsense), post]), 400);
    }
}

#[test]
fn a_method_in_any_case_is_the_same_method() {
    let service = service();
    let mut client = service.client();
    for method in ["post", "Post"] {
        ask(&mut client, "", &[("x-forwarded-uri", "/login"), ("x-forwarded-method", method)]);
    }
    assert_eq!(left(&mut client, "logins"), 0);
    let body = |method: &str| format!(r#"{{"attributes": {{"endpoint": "/login", "method": "{method}"}}}}"#);
    let checked = client.send("POST", "/v1/check", &[], &body("pOST")).json();
    assert_eq!(checked["allowed"], false, "{checked}");
}

/// Paths that servers read in several ways.
const SPELLED: [&str; 8] = [
    "/api//../login",
    "/a%2Fb/../login",
    r"/x\..\login",
    "/login//..",
    "/files%2F..%2Flogin",
    "/x/%2e%2E/login",
    "/login/.?x",
    "https://shop.example/x/..%5clogin",
];

#[test]
fn dot_segments_are_refused_unless_a_profile_accepts_them() {
    let service = service();
    let mut client = service.client();
    let post = ("x-forwarded-method", "POST");
    for path in SPELLED {
        let uri = ("x-forwarded-uri", path);
        for (profile, status) in [("", 400), ("/nginx", 401), ("/forbidden", 403), ("/dots-refused", 403)] {
            let reply = ask(&mut client, profile, &[uri, post]);
            assert!(problem(&reply, status).contains("a segment `.` or `..`"), "{path}: {reply:?}");
            assert_eq!(reply.header("trypema-refused"), Some("dot-segments"), "{path}");
            assert_eq!((reply.header("retry-after"), reply.header("ratelimit")), (None, None), "{path}");
        }
        assert_eq!(left(&mut client, "logins"), 2, "{path}: nothing is spent");
    }
    for path in ["/.well-known/a..b", "/login?back=/../x", "/a%2Fb", "//x//y", "*"] {
        let reply = ask(&mut client, "/nginx", &[("x-forwarded-uri", path)]);
        assert_eq!((reply.status, reply.header("trypema-refused")), (200, None), "{path}");
    }
    ask(&mut client, "/dots-literal", &[ANY]);
    assert_eq!(left(&mut client, "logins"), 1, "a literal is the operator's");
    let original = [("x-original-url", "/x/../login"), ("x-real-ip", "203.0.113.7")];
    problem(&ask(&mut client, "/elsewhere", &original), 400);
}

#[test]
fn fragments_are_refused() {
    let service = service();
    let mut client = service.client();
    for path in ["/login#", "/login#x", "/x#/../login", "http://host/login#x?y"] {
        let login = [("x-forwarded-uri", path), ("x-forwarded-method", "POST")];
        for (profile, status) in [("", 400), ("/dots", 400), ("/nginx", 401), ("/forbidden", 403)] {
            let reply = ask(&mut client, profile, &login);
            assert!(problem(&reply, status).contains("it has a `#`"), "{path}: {reply:?}");
            assert_eq!(reply.header("trypema-refused"), Some("fragment"), "{path}");
        }
    }
    let original = [("x-original-url", "/login#x"), ("x-real-ip", "203.0.113.7")];
    assert_eq!(ask(&mut client, "/elsewhere", &original).header("trypema-refused"), Some("fragment"));
    assert_eq!(left(&mut client, "logins"), 2, "nothing is spent");
    assert_eq!(ask(&mut client, "", &[("x-forwarded-uri", "/login?x#y")]).status, 200, "not in the path");
}

/// WHATWG takes `x` for the host.
#[test]
fn uris_without_a_host_are_refused() {
    let service = service();
    let mut client = service.client();
    for uri in ["http:///x/login", r"http:\/\x/login", r"http://\x/login", "http://", "foo:http://x/login"] {
        problem(&ask(&mut client, "", &[("x-forwarded-uri", uri)]), 400);
    }
}

/// Caddy's `rewrite` passes on `foo:http://x/healthz` as `http://x/healthz`.
#[test]
fn targets_are_paths() {
    let service = service();
    let mut client = service.client();
    let paths = [
        "/healthz",
        "/readyz",
        "/v1/forward-auth",
        "/v1/forward-auth/nginx",
        "/v1/check",
        "/v1/reserve",
        "/v1/settle",
        "/v1/release",
        "/v1/renew",
        "/nothing",
        "",
    ];
    for path in paths {
        for method in ["GET", "POST"] {
            let line = format!("{method} http://x{path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
            client.write(line.as_bytes()).unwrap();
            let reply = client.read().unwrap();
            assert!(problem(&reply, 400).contains("needs to be a path"), "{path}: {reply:?}");
        }
    }
    assert_eq!(client.send("GET", "/healthz", &[], "").status, 200);
}

#[test]
fn a_profile_that_accepts_dot_segments_counts_every_reading() {
    for path in SPELLED {
        let service = service();
        let mut client = service.client();
        let login = [("x-forwarded-uri", path), ("x-forwarded-method", "post")];
        assert_eq!(ask(&mut client, "/dots", &login).status, 200, "{path}");
        assert_eq!(left(&mut client, "logins"), 1, "{path}");
        assert_eq!(ask(&mut client, "/dots", &login).status, 200, "{path}");
        let denied = ask(&mut client, "/dots", &login);
        assert_eq!((denied.status, denied.header("trypema-refused")), (429, None), "{path}");
    }
    let service = service();
    let mut client = service.client();
    let ambiguous = [("x-forwarded-uri", r"/a%2Fb//../c\d")];
    for (profile, status) in [("/dots", 400), ("/dots-unauthorized", 401)] {
        let reply = ask(&mut client, profile, &ambiguous);
        assert!(problem(&reply, status).contains("in more than 6 ways"), "{reply:?}");
        assert_eq!(reply.header("trypema-refused"), Some("ambiguous-path"));
    }
    let body = serde_json::json!({"attributes": {"endpoint": r"/a%2Fb//../c\d"}}).to_string();
    assert!(problem(&client.send("POST", "/v1/check", &[], &body), 400).contains("in more than 6 ways"));
}

#[test]
fn literals_of_a_profile_win_over_headers() {
    let service = service();
    let mut client = service.client();
    ask(&mut client, "/literal", &[ANY, ("x-user", "ann"), ("x-tenant", "other"), ("user", "eve")]);
    assert_eq!((left(&mut client, "per-user|user=bob"), left(&mut client, "per-user|user=ann")), (1, 2));
    assert_eq!(left(&mut client, "free|tenant=acme~7c%20x"), 1);
    let other = [("x-forwarded-uri", "/by-address"), ("x-forwarded-method", "GET")];
    ask(&mut client, "/fixed", &other);
    assert_eq!(left(&mut client, "logins"), 1);
    assert_eq!(client.send("GET", "/v1/forward-auth/fixed", &[], "").status, 200, "nothing is missing");
    assert_eq!(left(&mut client, "logins"), 0);
}

#[test]
fn attributes_of_a_profile_may_be_texts_or_a_list() {
    let service = service();
    let mut client = service.client();
    ask(&mut client, "/texts", &[ANY, ("x-user", "ann")]);
    assert_eq!((left(&mut client, "per-user|user=ann"), left(&mut client, "free|tenant=7")), (1, 1));
    ask(&mut client, "/listed", &[ANY, ("x-user", "ann")]);
    assert_eq!((left(&mut client, "per-user|user=ann"), left(&mut client, "free|tenant=acme")), (0, 1));
}

/// For proxies that call forward-auth twice for one client request: the second profile leaves out the
/// request's own attributes, so that their rules do not count the request again.
#[test]
fn a_profile_may_leave_out_what_requests_have_by_themselves() {
    let service = service();
    let mut client = service.client();
    let request =
        [("x-forwarded-uri", "/by-address"), ("x-forwarded-host", "shop.example"), ("x-user", "ann")];
    let reply = ask(&mut client, "/nowhere", &[&request[..], &[("x-forwarded-for", "203.0.113.7")]].concat());
    assert_eq!(reply.status, 200);
    let left = ["per-user|user=ann", "per-address|ip=203.0.113.7", "hosts|host=shop.example"]
        .map(|key| left(&mut client, key));
    assert_eq!(left, [1, 2, 2]);
}

/// For proxies that describe a request in their own headers, such as the nginx ingress controller of
/// Kubernetes.
#[test]
fn a_profile_may_take_the_request_itself_from_other_headers() {
    let service = service();
    let mut client = service.client();
    let login = [("x-original-url", "https://shop.example/login?x"), ("x-original-method", "POST")];
    ask(&mut client, "/elsewhere", &[&login[..], &[("x-real-ip", "203.0.113.7")]].concat());
    assert_eq!(left(&mut client, "logins"), 1);
    let address = [("x-original-url", "/by-address"), ("x-real-ip", "203.0.113.7"), ANY];
    ask(&mut client, "/elsewhere", &address);
    assert_eq!(left(&mut client, "per-address|ip=203.0.113.7"), 1);
    let detail = problem(&ask(&mut client, "/elsewhere", &[("x-real-ip", "203.0.113.7"), ANY]), 400);
    assert!(detail.contains("x-original-url is missing"), "{detail}");
    let detail = problem(&ask(&mut client, "/elsewhere", &login), 400);
    assert!(detail.contains("x-real-ip is missing"), "{detail}");
    for address in ["somebody", "203.0.113.7:80", "203.0.113.7, 203.0.113.8"] {
        let headers = [&login[..], &[("x-real-ip", address)]].concat();
        assert!(problem(&ask(&mut client, "/elsewhere", &headers), 400).contains("ip: need an address"));
    }
}

#[test]
fn a_request_that_is_not_described_is_refused() {
    let service = service();
    let mut client = service.client();
    assert!(problem(&ask(&mut client, "", &[]), 400).contains("x-forwarded-uri is missing"));
    let reply = client.send("GET", "/v1/forward-auth", &[ANY], "");
    assert!(problem(&reply, 400).contains("x-forwarded-for is missing"));
}

/// If a header that the proxy sets occurs twice, the client has sent one of them.
#[test]
fn headers_that_come_twice_are_refused() {
    let service = service();
    let mut client = service.client();
    for name in ["x-forwarded-uri", "x-forwarded-method", "x-forwarded-host", "x-user"] {
        let mut headers = vec![(name, "/a"), (name, "/b")];
        if name != "x-forwarded-uri" {
            headers.push(ANY);
        }
        let detail = problem(&ask(&mut client, "", &headers), 400);
        assert!(detail.contains(name) && detail.contains("twice"), "{detail}");
    }
}

#[test]
fn who_is_no_proxy_is_not_answered() {
    let service = InProcess::start(&format!("trusted_proxies: [10.0.0.0/8]\n{SETTINGS}")).ruled_by(RULES);
    let mut client = service.client();
    let reply = ask(&mut client, "", &[ANY, ("x-user", "ann"), ("x-forwarded-for", "10.0.0.1")]);
    assert_eq!(problem(&reply, 403), "127.0.0.1 is not one of the trusted proxies");
    assert_eq!(left(&mut client, "per-user|user=ann"), 2, "nothing was spent");
    assert_eq!(client.send("POST", "/v1/check", &[], &user("ann").to_string()).status, 200);
}

#[test]
fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
    let trusted = "trusted_proxies: [127.0.0.0/8, 192.0.2.0/24]";
    let service = InProcess::start(trusted).ruled_by(RULES);
    let mut client = service.client();
    let chains = [
        ("203.0.113.1", "203.0.113.1"),
        ("198.51.100.66, 203.0.113.2", "203.0.113.2"),
        ("198.51.100.66, 203.0.113.3, 192.0.2.7", "203.0.113.3"),
        ("203.0.113.4,192.0.2.7 , 192.0.2.8", "203.0.113.4"),
        ("203.0.113.5:4711", "203.0.113.5"),
    ];
    for (chain, address) in chains {
        ask(&mut client, "", &[("x-forwarded-uri", "/by-address"), ("x-forwarded-for", chain)]);
        assert_eq!(left(&mut client, &format!("per-address|ip={address}")), 1, "{chain}");
    }
    let two_lines = [
        ("x-forwarded-uri", "/by-address"),
        ("x-forwarded-for", "198.51.100.66"),
        ("x-forwarded-for", "203.0.113.6"),
    ];
    ask(&mut client, "", &two_lines);
    assert_eq!(left(&mut client, "per-address|ip=203.0.113.6"), 1, "lines of a list are one list");
    ask(&mut client, "", &[("x-forwarded-uri", "/by-address"), ("x-forwarded-for", "192.0.2.7")]);
    assert_eq!(left(&mut client, "per-address|ip=192.0.2.7"), 1, "where all are trusted, the first of them");
    assert_eq!(left(&mut client, "per-address|ip=198.51.100.66"), 2, "what clients claim counts for nothing");
}

#[test]
fn an_ipv6_client_is_its_network() {
    let service = service();
    let mut client = service.client();
    let mut status = |address: &str| {
        ask(&mut client, "", &[("x-forwarded-uri", "/by-address"), ("x-forwarded-for", address)]).status
    };
    assert_eq!([status("2001:db8:0:1::1"), status("2001:db8:0:1:ffff::2")], [200, 200]);
    assert_eq!(status("2001:db8:0:1::3"), 429, "all of a /64 is one client");
    assert_eq!(status("2001:db8:0:2::1"), 200);
    assert_eq!([status("::ffff:203.0.113.9"), status("203.0.113.9"), status("203.0.113.9")], [200, 200, 429]);
}

#[test]
fn every_method_is_understood_and_bodies_are_ignored() {
    let service = service();
    let mut client = service.client();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let reply = client.send(method, "/v1/forward-auth", &[ANY, SOMEBODY], "not json");
        assert_eq!(reply.status, 200, "{method}");
    }
}
