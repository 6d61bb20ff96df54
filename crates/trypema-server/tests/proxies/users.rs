//! Limits per user, by a verified token: the samples, and attacks on them.

use serde_json::{Value, json};

use crate::authenticator::{token, unsigned};
use crate::client::Reply;
use crate::proxy::{Kind, Sample, Site};

with_each_proxy! {
    each_user_has_its_own_limit
    tokens_that_are_not_valid_pass_nothing_and_spend_nothing
    clients_cannot_claim_to_be_somebody
    forged_tokens_are_limited_by_address
    the_application_gets_the_verified_user
    bodies_and_queries_reach_the_application_alone
}

const THREE_PER_USER: &str = "
rules:
  - {id: per-user, scope: user, strategy: {absolute: {limit: 3, window: 1h}}}
";

fn site(kind: Kind) -> Site {
    Site::of_sample(kind, Sample::User, THREE_PER_USER)
}

/// Sends a request with a token and other headers.
fn send(site: &Site, token: &str, headers: &[(&str, &str)]) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [&[("Authorization", bearer.as_str())], headers].concat();
    site.client().send("GET", "/", &headers, "")
}

fn each_user_has_its_own_limit(kind: Kind) {
    let site = site(kind);
    for number in 0..3 {
        // A different token each time, for the same user.
        let reply = send(&site, &token(&json!({"sub": "alice", "iat": number})), &[]);
        assert_eq!(reply.status, 200, "{reply:?}\n{}", site.log());
        assert_eq!(reply.json()["headers"]["x-user"], "alice");
        assert_eq!(reply.header("ratelimit-policy"), Some("\"per-user\";q=3;w=3600"));
    }
    let denied = send(&site, &token(&json!({"sub": "alice"})), &[]);
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
    assert_eq!(send(&site, &token(&json!({"sub": "bob"})), &[]).status, 200);
    assert_eq!(site.application.asked(), 4);
}

fn tokens_that_are_not_valid_pass_nothing_and_spend_nothing(kind: Kind) {
    let site = site(kind);
    let alice = json!({"sub": "alice"});
    let valid = token(&alice);
    let other_claims = unsigned(&json!({"alg": "HS256"}), &json!({"sub": "bob"}));
    let signature = valid.rsplit('.').next().unwrap();
    let forged = [
        format!("{other_claims}.{signature}"),
        format!("{}.", unsigned(&json!({"alg": "none"}), &alice)),
        valid[..valid.len() - 1].to_owned(),
        format!("{valid}&cost=0"),
        "alice".to_owned(),
        String::new(),
    ];
    for forged in &forged {
        assert_eq!(send(&site, forged, &[("X-User", "alice")]).status, 401, "{forged}");
    }
    assert_eq!(site.client().send("GET", "/", &[("X-User", "alice")], "").status, 401);
    assert_eq!(site.application.asked(), 0);
    let statuses = [(); 4].map(|()| send(&site, &valid, &[]).status);
    assert_eq!(statuses, [200, 200, 200, 429], "none of these were alice's requests");
}

fn clients_cannot_claim_to_be_somebody(kind: Kind) {
    let site = site(kind);
    let alice = token(&json!({"sub": "alice"}));
    for (number, headers) in [
        &[("X-User", "fresh")][..],
        &[("x-user", "fresh"), ("X-User", "fresher")],
        &[("X_User", "fresh")],
        &[("X-User", ""), ("X-Forwarded-User", "fresh"), ("X-User", "fresh")],
        &[("Connection", "X-User")],
        &[("X-User", "fresh"), ("Connection", "close, X-User, Authorization-")],
    ]
    .into_iter()
    .enumerate()
    {
        let reply = send(&site, &alice, headers);
        assert_eq!(reply.status, if number < 3 { 200 } else { 429 }, "{headers:?}");
        if reply.status == 200 {
            let headers: Value = reply.json()["headers"].clone();
            assert_eq!(headers["x-user"], "alice");
            assert!(headers.get("x_user").is_none(), "{headers}");
        }
    }
    // A valid token without the claim identifies no user, whatever the client's headers say.
    let nobody = token(&json!({"aud": "somewhere"}));
    for headers in [&[("X-User", "victim")][..], &[("X-User", "victim"), ("X_User", "victim")]] {
        for _ in 0..2 {
            let reply = send(&site, &nobody, headers);
            assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "{headers:?}");
            assert!(!reply.body.contains("victim"), "{}", reply.body);
        }
    }
    let victim = token(&json!({"sub": "victim"}));
    assert_eq!([(); 4].map(|()| send(&site, &victim, &[]).status), [200, 200, 200, 429]);
}

/// Otherwise a client could guess tokens, and flood the authenticator, without a limit.
fn forged_tokens_are_limited_by_address(kind: Kind) {
    let rules = format!(
        "{THREE_PER_USER}  - {{id: per-address, scope: ip, strategy: {{absolute: {{limit: 6, window: 1h}}}}}}\n"
    );
    let site = Site::of_sample(kind, Sample::User, &rules);
    let alice = token(&json!({"sub": "alice"}));
    assert_eq!([(); 4].map(|()| send(&site, &alice, &[]).status), [200, 200, 200, 429], "{}", site.log());
    let left = site.service.get("/v1/keys/per-address%7Cip=127.0.0.1").json()["remaining"].clone();
    assert_eq!(left, 2, "each request counts once for its address");
    let forged = format!("{}.", unsigned(&json!({"alg": "none"}), &json!({"sub": "bob"})));
    let statuses = [(); 4].map(|()| send(&site, &forged, &[]).status);
    assert_eq!(statuses, [401, 401, 429, 429]);
    let denied = send(&site, &forged, &[]);
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.header("ratelimit-policy"), Some("\"per-address\";q=6;w=3600"), "{denied:?}");
    assert_eq!(site.application.asked(), 3);
}

/// `Connection` makes a proxy remove headers, but not those that it sets itself.
fn the_application_gets_the_verified_user(kind: Kind) {
    let site = site(kind);
    for listed in ["X-User", "close, X-User"] {
        let reply = send(&site, &token(&json!({"sub": "bob"})), &[("Connection", listed), ("X-User", "eve")]);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["headers"]["x-user"], "bob", "Connection: {listed}");
    }
    let nobody = send(&site, &token(&json!({"aud": "somewhere"})), &[("Connection", "X-User")]);
    assert_eq!((nobody.status, nobody.json()["headers"].get("x-user").cloned()), (200, None));
}

fn bodies_and_queries_reach_the_application_alone(kind: Kind) {
    let site = site(kind);
    let bearer = format!("Bearer {}", token(&json!({"sub": "alice"})));
    let large = "0123456789".repeat(50_000);
    for body in ["a=b", &large] {
        let headers = [("Authorization", bearer.as_str())];
        let reply = site.client().send("POST", "/orders?user=bob&cost=0", &headers, body);
        assert_eq!(reply.status, 200, "{}", site.log());
        let reply = reply.json();
        assert_eq!((&reply["method"], &reply["target"]), (&"POST".into(), &"/orders?user=bob&cost=0".into()));
        assert!(reply["body"] == body, "{} bytes arrived otherwise", body.len());
    }
}
