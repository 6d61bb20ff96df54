//! Limits per API key: the samples, and attacks on them.

use crate::client::Reply;
use crate::proxy::{Kind, Sample, Site};

with_each_proxy! {
    each_key_has_its_own_limit
    the_application_gets_the_key_that_was_counted
    a_key_has_one_spelling
    readers_see_a_hash_of_the_key
}

const THREE_PER_KEY: &str = "
rules:
  - {id: per-api-key, scope: tenant, key_pattern: '{api_key}', strategy: {absolute: {limit: 3, window: 1h}}}
";

const KEY: &str = "0123456789abcdef-ALICE";
const OTHER: &str = "0123456789abcdef-BOB";

/// Starts a site with an API key at its limit.
fn site_with_a_key_at_its_limit(kind: Kind) -> Site {
    let site = Site::of_sample(kind, Sample::ApiKey, THREE_PER_KEY);
    let statuses = [(); 4].map(|()| send(&site, &[("X-Api-Key", KEY)]).status);
    assert_eq!(statuses, [200, 200, 200, 429], "{}", site.log());
    site
}

/// Who reads a counter's name could use the key.
fn readers_see_a_hash_of_the_key(kind: Kind) {
    let site = site_with_a_key_at_its_limit(kind);
    let shown = site.service.get(&format!("/v1/keys/per-api-key%7Capi_key={KEY}"));
    assert_eq!(shown.json()["remaining"], 0, "{shown:?}");
    assert!(shown.body.contains("per-api-key|api_key=hmac:") && !shown.body.contains(KEY), "{shown:?}");
}

fn send(site: &Site, headers: &[(&str, &str)]) -> Reply {
    site.client().send("GET", "/", headers, "")
}

fn each_key_has_its_own_limit(kind: Kind) {
    let site = site_with_a_key_at_its_limit(kind);
    assert_eq!(send(&site, &[("x-api-key", KEY)]).status, 429, "in letters of any case");
    assert_eq!(send(&site, &[("X-Api-Key", OTHER)]).status, 200);
    for headers in [&[][..], &[("X-Api-Key", "")]] {
        let reply = send(&site, headers);
        assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "{headers:?} is no key");
    }
}

/// Otherwise a client could be limited by one key and served with another.
fn the_application_gets_the_key_that_was_counted(kind: Kind) {
    let site = site_with_a_key_at_its_limit(kind);
    for number in 0..4 {
        let fresh = format!("0123456789abcdef-{number}");
        for headers in [
            [("X-Api-Key", fresh.as_str()), ("X-Api-Key", KEY)],
            [("X-Api-Key", KEY), ("X-Api-Key", &fresh)],
            [("X-Api-Key", &fresh), ("X_Api_Key", KEY)],
            [("X_Api_Key", KEY), ("X-Api-Key", &fresh)],
            [("X-Api-Key", &fresh), ("X-Api_Key", KEY)],
            [("X-Api-Key", &fresh), ("X_Api-Key", KEY)],
        ] {
            let reply = send(&site, &headers);
            match reply.status {
                200 => {
                    assert!(!reply.body.contains(KEY), "{headers:?} reached the application: {}", reply.body)
                }
                status => assert!([400, 429].contains(&status), "{headers:?} is {status}"),
            }
        }
    }
    let reply = send(&site, &[("X-Api-Key", KEY), ("Connection", "X-Api-Key")]);
    assert_eq!(reply.status, 429, "Connection does not hide the key from the limiter");
    let reply = send(&site, &[("X-Api-Key", OTHER), ("Connection", "X-Api-Key")]);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["headers"]["x-api-key"], OTHER, "nor from the application");
    for name in ["X_Api_Key", "X-Api_Key", "X_Api-Key"] {
        let reply = send(&site, &[(name, KEY)]);
        assert_eq!(reply.status, 200);
        assert!(!reply.body.contains(KEY), "{name} reached the application: {}", reply.body);
    }
}

fn a_key_has_one_spelling(kind: Kind) {
    let site = site_with_a_key_at_its_limit(kind);
    let long = "a".repeat(129);
    let spellings = [
        format!("{KEY}&cost=0"),
        format!("{KEY}?cost=0"),
        format!("{KEY}%26cost=0"),
        format!("{KEY}#"),
        format!("{KEY}, {OTHER}"),
        format!("{KEY},"),
        format!("\"{KEY}\""),
        format!("Bearer {KEY}"),
        format!("{KEY}\u{a0}"),
        KEY.replace('-', "%2D"),
        "{env.HOME}".to_owned(),
        format!("{{x}}{KEY}"),
        format!("{KEY}{{env.TRYPEMA_NO_SUCH_VARIABLE}}"),
        "short".to_owned(),
        long,
    ];
    for spelling in &spellings {
        assert_eq!(send(&site, &[("X-Api-Key", spelling)]).status, 400, "{spelling}");
    }
    // Caddy trims spaces before it compares, nginx does not.
    let padded = send(&site, &[("X-Api-Key", &format!(" {KEY}\t"))]).status;
    assert!([400, 429].contains(&padded), "{padded}");
    assert_eq!(site.application.asked(), 3);
}
