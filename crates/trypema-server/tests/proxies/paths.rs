//! Paths that applications read in another way than proxies do, and methods in other cases.

use std::fs;

use serde_json::json;

use crate::harness::{Service, trypema};
use crate::proxy::{Kind, Sample, Site, Undecided};

with_each_proxy! {
    a_client_does_not_choose_what_trypema_is_asked
    dot_segments_do_not_reach_the_application
    fragments_do_not_reach_the_application
    spelled_paths_get_around_no_rule
}

/// Targets of requests, and the route that an application serves for each which resolves dots, backslashes or
/// encoded slashes in its own way. Each has a route of its own.
const SPELLED: [(&str, &str); 10] = [
    ("/api//../login-0", "/api/login-0"),
    ("/api//../login-1", "/login-1"),
    ("/a%2Fb/../api/login-2", "/api/login-2"),
    (r"/x\..\api/login-3", "/api/login-3"),
    ("/admin-4//..", "/admin-4"),
    ("/files%2F..%2Fx-5", "/x-5"),
    ("/x/%2e%2E/login-6", "/login-6"),
    ("/api%5Clogin-7", "/api/login-7"),
    // `new URL(request.url, base)` takes `x` for a host.
    ("//x/login-8", "/login-8"),
    ("/api%2Flogin-9", "/api/login-9"),
];

/// A path that servers may read in more than six ways.
const AMBIGUOUS: &str = "/a%2Fb//../c%5Cd";

fn has_dots(path: &str) -> bool {
    path.contains("..") || path.contains("%2e")
}

/// Each route of `SPELLED` once, `POST /login` once, and no `/secret`.
fn rules() -> String {
    let rule = |(number, (_, served)): (usize, &(&str, &str))| {
        let strategy = "strategy: {absolute: {limit: 1, window: 1h}}";
        format!("  - {{id: r{number}, scope: global, endpoints: ['{served}'], {strategy}}}\n")
    };
    let each: String = SPELLED.iter().enumerate().map(rule).collect();
    let login = "  - {id: login, scope: global, endpoints: [POST /login], strategy: {absolute: {limit: 1, window: 1h}}}";
    format!("rules:\n{each}{login}\nblock: {{endpoint: [/secret]}}")
}

/// Go takes the first for a URL without a path, and a `rewrite` of Caddy changes only paths.
fn a_client_does_not_choose_what_trypema_is_asked(kind: Kind) {
    let targets = [
        "foo:http://x/healthz",
        "foo:http://x/v1/forward-auth/nginx",
        "foo:http://x/v1/forward-auth/default",
        "foo:",
        "foo:healthz",
        "*",
    ];
    for sample in [Sample::Address, Sample::Session, Sample::ApiKey, Sample::User] {
        let site = Site::of_sample(kind, sample, "rules: []");
        for target in targets {
            let refused = site.get(target);
            assert_eq!(refused.status, 400, "{sample:?}, {target}: {refused:?}\n{}", site.log());
        }
        assert_eq!(site.application.asked(), 0, "{sample:?}");
        // The authenticator asks for a token.
        let without_token = if sample == Sample::User { 401 } else { 200 };
        assert_eq!(site.get("/").status, without_token, "{sample:?}");
    }
}

/// The sample as it is: nobody sends such paths by themselves, so they are refused.
fn dot_segments_do_not_reach_the_application(kind: Kind) {
    let site = Site::start(kind, &rules());
    for (path, _) in SPELLED.iter().filter(|(path, _)| has_dots(path)).chain([&(AMBIGUOUS, "")]) {
        let refused = site.get(path);
        assert_eq!(refused.status, 400, "{path}: {refused:?}\n{}", site.log());
        assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{path}");
        assert_eq!(
            (refused.json()["status"].as_u64(), refused.header("retry-after")),
            (Some(400), None),
            "{path}"
        );
    }
    assert_eq!(site.application.asked(), 0);
    for path in ["/.well-known/a..b", "/a%2Fb", "//y", "/?back=/../x"] {
        assert_eq!(site.get(path).status, 200, "{path}");
    }
    assert_eq!(site.application.asked(), 4);
}

/// nginx passes on a `#` and what follows; whether that is a part of the path, the application decides.
fn fragments_do_not_reach_the_application(kind: Kind) {
    let rules = "rules: [{id: login, scope: global, endpoints: [/login], strategy: {absolute: {limit: 1, window: 1h}}}]";
    let site = Site::start(kind, rules);
    assert_eq!(site.get("/login").status, 200);
    for target in ["/x#/../login", "/login#x", "/login#"] {
        let reply = site.get(target);
        match kind {
            Kind::Nginx => {
                assert_eq!(reply.status, 400, "{target}: {reply:?}\n{}", site.log());
                assert_eq!(reply.json()["detail"], "The path is refused: fragment.");
            }
            // Caddy encodes it, for Trypema and for the application.
            Kind::Caddy if reply.status == 200 => {
                assert_eq!(reply.json()["target"], target.replace('#', "%23"));
            }
            Kind::Caddy => assert_eq!(reply.status, 400, "{target}: {reply:?}"),
        }
    }
    assert_eq!(site.get("/?a#b").status, 200, "not in the path");
}

/// A profile that accepts dot segments: all paths that applications may read count.
fn spelled_paths_get_around_no_rule(kind: Kind) {
    let service = Service::of(|directory| {
        let profiles = json!({"forward_auth": {"profiles": {
            "default": {"dot_segments": "accept"},
            "nginx": {"dot_segments": "accept", "deny_status": 401},
        }}});
        let (config, rules_file) = (directory.join("trypema.yaml"), directory.join("rules.yaml"));
        fs::write(&config, profiles.to_string()).unwrap();
        fs::write(&rules_file, rules()).unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        command.arg("--rules").arg(rules_file);
        command
    });
    let site = Site::with_service(kind, Undecided::Refused, service);
    let mut reached = 0;
    for (spelled, served) in SPELLED {
        assert_eq!(site.get(served).status, 200, "{served}");
        reached += 1;
        let denied = site.get(spelled);
        assert_eq!(denied.status, 429, "{spelled} is {served}: {denied:?}\n{}", site.log());
    }
    for path in [
        "/x//../secret",
        "/secret//..",
        r"/x\..\secret",
        "/a%2Fb/../secret",
        "/x%2F..%2Fsecret",
        "//x/secret",
    ] {
        let blocked = site.get(path);
        assert!(matches!(blocked.status, 403 | 429), "{path}: {blocked:?}");
    }
    let ambiguous = site.get(AMBIGUOUS);
    assert_eq!((ambiguous.status, ambiguous.json()["status"].as_u64()), (400, Some(400)), "{ambiguous:?}");

    let post = |method: &str| site.client().send(method, "/login", &[], "x").status;
    assert_eq!([post("POST"), post("POST")], [200, 429]);
    reached += 1;
    // nginx answers 400 to methods in lower case.
    assert!([post("post"), post("Post")].iter().all(|status| matches!(status, 400 | 429)));
    assert_eq!(site.application.asked(), reached);
}
