//! Reserving, settling, releasing and renewing, and the holders of a counter.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{check, problem};
use crate::client::{Client, Reply};
use crate::in_process::InProcess;

const RULES: &str = "
units: [tokens]
rules:
  - {id: tokens, scope: user, unit: tokens, strategy: {fixed_window: {limit: 1000, window: 1h}}}
  - {id: requests, name: Requests, scope: user, strategy: {fixed_window: {limit: 10, window: 1h}}}
  - {id: uploads, name: Uploads, scope: user, strategy: {concurrency: {limit: 2, hold: 5m}}}
";

/// A text with an id that nobody has reserved, and the counter `uploads|user=ann`.
const MADE_UP: &str = "r1.AAECAwQFBgcICQoLDA0ODxAAdXBsb2Fkc3x1c2VyPWFubg";

/// Returns a text that names these counters.
fn text_of(counters: &[String]) -> String {
    let mut bytes = vec![8; 16];
    for counter in counters {
        bytes.extend_from_slice(&u16::try_from(counter.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(counter.as_bytes());
    }
    format!("r1.{}", URL_SAFE_NO_PAD.encode(bytes))
}

fn post(client: &mut Client, path: &str, body: &Value) -> Reply {
    client.send("POST", path, &[], &body.to_string())
}

/// Sends a request that must be answered with 200, and returns the body.
fn sent(client: &mut Client, path: &str, body: &Value) -> Value {
    let reply = post(client, path, body);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
    reply.json()
}

/// Returns the body of a reservation of tokens for ann.
fn tokens(tokens: u64) -> Value {
    json!({"attributes": {"user": "ann"}, "costs": {"tokens": tokens}, "ttl": "120s"})
}

fn reserve(client: &mut Client, tokens_of_ann: u64) -> Value {
    sent(client, "/v1/reserve", &tokens(tokens_of_ann))
}

fn settlement(made: &Value, costs: &Value) -> Value {
    json!({"reservation": made["reservation"], "costs": costs})
}

/// Returns the units that are left of ann's counters: tokens, requests, uploads.
fn left(client: &mut Client) -> [u64; 3] {
    ["tokens", "requests", "uploads"].map(|rule| {
        let shown = client.send("GET", &format!("/v1/keys/{rule}%7Cuser=ann"), &[], "").json();
        shown["remaining"].as_u64().unwrap()
    })
}

#[test]
fn a_reservation_is_settled_at_the_real_cost() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let made = reserve(&mut client, 800);
    assert_eq!(
        ["allowed", "outcome", "expires_in_ms", "repeated"].map(|field| made[field].clone()),
        [json!(true), json!("allowed"), json!(120_000), json!(false)]
    );
    let rules: Vec<&Value> = made["rules"].as_array().unwrap().iter().map(|rule| &rule["rule"]).collect();
    assert_eq!(rules, ["requests", "tokens", "uploads"]);
    assert_eq!(made.get("skipped"), None);
    assert_eq!(left(&mut client), [200, 9, 1]);

    let settled = sent(&mut client, "/v1/settle", &settlement(&made, &json!({"tokens": 150})));
    let expected = json!({"settled": true, "rules": [
        {"rule": "requests", "name": "Requests", "key": "requests|user=ann", "unit": "requests", "status": "settled",
            "reserved": 1, "counted": 1, "refunded": 0},
        {"rule": "tokens", "key": "tokens|user=ann", "unit": "tokens", "status": "settled", "reserved": 800,
            "counted": 150, "refunded": 650},
        {"rule": "uploads", "name": "Uploads", "key": "uploads|user=ann", "unit": "requests", "status": "settled",
            "reserved": 1, "counted": 1, "refunded": 1},
    ]});
    assert_eq!(settled, expected);
    assert_eq!(left(&mut client), [850, 9, 2]);

    // Again, or released after that, changes nothing and says so.
    for (path, body) in [
        ("/v1/settle", settlement(&made, &json!({"tokens": 0}))),
        ("/v1/release", json!({"reservation": made["reservation"]})),
    ] {
        let again = sent(&mut client, path, &body);
        assert_eq!(again["settled"], json!(false), "{path}");
        let rules = again["rules"].as_array().unwrap();
        assert!(
            rules.iter().all(|rule| rule["status"] == "not_outstanding" && rule.get("counted").is_none())
        );
    }
    let late = sent(&mut client, "/v1/renew", &json!({"reservation": made["reservation"]}));
    assert_eq!(late, json!({"renewed": false, "expires_in_ms": null}));
    assert_eq!(left(&mut client), [850, 9, 2]);
}

#[test]
fn more_than_was_reserved_is_counted_and_a_unit_without_a_cost_keeps_its_estimate() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let made = reserve(&mut client, 800);
    sent(&mut client, "/v1/settle", &settlement(&made, &json!({"tokens": 1_200, "requests": 0})));
    assert_eq!(left(&mut client), [0, 10, 2], "overdrawn");
    assert_eq!(reserve(&mut client, 1)["decided_by"], json!("tokens"));
    let other = json!({"attributes": {"user": "ann"}, "cost": 3});
    let made = sent(&mut client, "/v1/reserve", &other);
    assert_eq!(made["allowed"], json!(false), "an upload of three is more than two: {made}");
    let made = sent(&mut client, "/v1/reserve", &json!({"attributes": {"user": "ann"}, "cost": 2}));
    assert_eq!(made["expires_in_ms"], json!(60_000), "the default");
    let settled = sent(&mut client, "/v1/settle", &settlement(&made, &json!({})));
    assert_eq!(settled["settled"], json!(true));
    assert_eq!(left(&mut client), [0, 8, 2]);
}

#[test]
fn a_release_gives_everything_back() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let made = reserve(&mut client, 800);
    let released = sent(&mut client, "/v1/release", &json!({"reservation": made["reservation"]}));
    assert_eq!(released["settled"], json!(true), "{released}");
    let counted = released["rules"].as_array().unwrap().iter().map(|rule| rule["counted"].clone());
    assert_eq!(counted.collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(left(&mut client), [1_000, 10, 2]);
}

#[test]
fn a_denial_is_that_of_a_check() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let made = reserve(&mut client, 800);
    let checked = json!({"attributes": {"user": "ann"}, "costs": {"tokens": 201}});
    for query in ["", "?deny_status=429", "?deny_status=403&headers=standard", "?headers=x-ratelimit"] {
        let denied = post(&mut client, &format!("/v1/reserve{query}"), &tokens(201));
        let as_check = post(&mut client, &format!("/v1/check{query}"), &checked);
        assert_eq!(denied.status, as_check.status, "{query}");
        let (mut denied_body, mut check_body) = (denied.json(), as_check.json());
        if let Some(rules) = denied_body.get_mut("rules") {
            // Only the reservation asks the concurrency rule.
            rules.as_array_mut().unwrap().retain(|rule| rule["rule"] != "uploads");
            check_body.as_object_mut().unwrap().remove("skipped");
        }
        assert_eq!(denied_body, check_body, "{query}");
        for field in ["reservation", "expires_in_ms", "repeated"] {
            assert_eq!(denied_body.get(field), None, "{query}");
        }
        for header in ["retry-after", "content-type"] {
            assert_eq!(denied.header(header), as_check.header(header), "{query}");
        }
        let is_reported = query.contains("headers=");
        let names = ["ratelimit", "x-ratelimit-limit"];
        assert_eq!(
            names.iter().any(|name| denied.header(name).is_some()),
            is_reported,
            "{query}: {denied:?}"
        );
    }
    assert_eq!(left(&mut client), [200, 9, 1]);
    for query in ["?deny_status=200", "?headers=loud", "?ttl=60s"] {
        problem(&post(&mut client, &format!("/v1/reserve{query}"), &tokens(1)), 400);
    }

    // Two uploads at once are allowed, a third one is not until one of them has ended.
    let second = reserve(&mut client, 0);
    let third = reserve(&mut client, 0);
    let told = ["allowed", "outcome", "decided_by", "retry_after_ms"].map(|field| third[field].clone());
    assert_eq!(told, [json!(false), json!("denied"), json!("uploads"), json!(1_000)]);
    sent(&mut client, "/v1/release", &json!({"reservation": made["reservation"]}));
    assert_eq!(
        (second["allowed"].clone(), reserve(&mut client, 0)["allowed"].clone()),
        (json!(true), json!(true))
    );
}

#[test]
fn an_id_makes_a_request_safe_to_repeat() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let mut named = tokens(100);
    named["id"] = json!("9f1c2a");
    let first = sent(&mut client, "/v1/reserve", &named);
    service.clock.advance(Duration::from_secs(20));
    let again = sent(&mut client, "/v1/reserve", &named);
    assert_eq!((&first["repeated"], &again["repeated"]), (&json!(false), &json!(true)));
    assert_eq!(first["reservation"], again["reservation"]);
    assert_eq!(again["expires_in_ms"], json!(100_000));
    assert_eq!(left(&mut client), [900, 9, 1]);

    let mut others =
        [tokens(101), json!({"attributes": {"user": "ann", "plan": "free"}, "costs": {"tokens": 100}})];
    for other in &mut others {
        other["id"] = json!("9f1c2a");
        let conflict = post(&mut client, "/v1/reserve?deny_status=429", other);
        assert!(problem(&conflict, 409).contains("another request made a reservation with this id"));
    }
    let of_bob = json!({"attributes": {"user": "bob"}, "costs": {"tokens": 1}, "id": "9f1c2a"});
    assert_eq!(sent(&mut client, "/v1/reserve", &of_bob)["repeated"], json!(false), "other counters");

    let settle = settlement(&first, &json!({"tokens": 10}));
    assert_eq!(sent(&mut client, "/v1/settle", &settle)["settled"], json!(true));
    let twice = sent(&mut client, "/v1/settle", &settle);
    assert_eq!((&twice["settled"], &twice["rules"][0]["status"]), (&json!(false), &json!("settled_before")));
    let repeated = sent(&mut client, "/v1/reserve", &named);
    assert_eq!(repeated["repeated"], json!(true), "{repeated}");
    assert_eq!(left(&mut client), [990, 9, 2]);
}

/// A caller that lost the answer has no text. The counters are those of the rules in force.
#[test]
fn a_reservation_is_ended_and_renewed_by_its_id() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let ann = json!({"user": "ann"});
    let mut reserve = |id: &str| {
        let mut named = tokens(100);
        named["id"] = json!(id);
        assert_eq!(sent(&mut client, "/v1/reserve", &named)["allowed"], json!(true));
    };
    reserve("settled");
    reserve("released");
    let by_id = |id: &str| json!({"id": id, "attributes": ann});

    let renewed = sent(&mut client, "/v1/renew", &by_id("settled"));
    assert_eq!(renewed, json!({"renewed": true, "expires_in_ms": 60_000}));
    let mut settle = json!({"id": "settled", "sets": [{"attributes": ann}], "costs": {"tokens": 10}});
    let settled = sent(&mut client, "/v1/settle", &settle);
    assert_eq!(settled["settled"], json!(true), "{settled}");
    assert_eq!(
        (&settled["rules"][1]["rule"], &settled["rules"][1]["refunded"]),
        (&json!("tokens"), &json!(90))
    );
    let released = sent(&mut client, "/v1/release", &by_id("released"));
    assert_eq!(released["settled"], json!(true), "{released}");
    assert_eq!(left(&mut client), [990, 9, 2]);

    // Another request did not make it, and an unknown id is no error.
    settle["id"] = json!("unknown");
    let unknown = sent(&mut client, "/v1/settle", &settle);
    assert_eq!(
        (&unknown["settled"], &unknown["rules"][0]["status"]),
        (&json!(false), &json!("not_outstanding"))
    );
    let of_bob = json!({"id": "settled", "attributes": {"user": "bob"}});
    assert_eq!(sent(&mut client, "/v1/release", &of_bob)["settled"], json!(false));
    for (body, expected) in [
        (json!({"id": "settled"}), "`id` needs the `attributes` or `sets`"),
        (json!({"id": "settled", "attributes": ann, "sets": []}), "`sets` excludes `attributes`"),
        (json!({"id": "", "attributes": ann}), "an id has 1 to 128 bytes"),
        (json!({"id": "a", "attributes": ann, "reservation": MADE_UP}), "`reservation` excludes `id`"),
    ] {
        for path in ["/v1/release", "/v1/renew"] {
            let detail = problem(&post(&mut client, path, &body), 400);
            assert!(detail.contains(expected), "{path} {body}: {detail}");
        }
    }
    assert_eq!(left(&mut client), [990, 9, 2]);
}

#[test]
fn a_reservation_lasts_as_long_as_it_is_renewed() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let mut longest = tokens(100);
    longest["ttl"] = json!("1h");
    let made = sent(&mut client, "/v1/reserve", &longest);
    assert_eq!(made["expires_in_ms"], json!(300_000), "the hold of the concurrency rule");
    let renew = |client: &mut Client, ttl: &str| {
        sent(client, "/v1/renew", &json!({"reservation": made["reservation"], "ttl": ttl}))
    };
    for _ in 0..3 {
        service.clock.advance(Duration::from_secs(100));
        assert_eq!(renew(&mut client, "120s"), json!({"renewed": true, "expires_in_ms": 120_000}));
    }
    assert_eq!(renew(&mut client, "1h"), json!({"renewed": true, "expires_in_ms": 300_000}));
    assert_eq!(left(&mut client), [900, 9, 1]);
    service.clock.advance(Duration::from_secs(300));
    assert_eq!(renew(&mut client, "1h"), json!({"renewed": false, "expires_in_ms": null}));
    assert_eq!(left(&mut client), [900, 9, 2], "the estimate stays counted, and the slot is free");
    let late = sent(&mut client, "/v1/settle", &settlement(&made, &json!({"tokens": 0})));
    assert_eq!(late["settled"], json!(false));
    assert_eq!(left(&mut client), [900, 9, 2]);
}

#[test]
fn what_is_wrong_changes_nothing() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let made = reserve(&mut client, 100);
    let text = made["reservation"].as_str().unwrap();
    let before = left(&mut client);
    let ann = json!({"user": "ann"});
    let long = format!("r1.{}", "A".repeat(64 * 1_024));
    let cut = &text[..text.len() - 3];
    let many = text_of(&(0..65).map(|number| number.to_string()).collect::<Vec<_>>());
    let twice = text_of(&["all".to_owned(), "all".to_owned()]);
    let swapped = text.replacen("r1.", "r2.", 1);
    let cases = [
        ("/v1/reserve", json!({}), "missing field `attributes`, or `sets`"),
        ("/v1/reserve", json!([{"attributes": ann}]), "expected an object"),
        ("/v1/reserve", json!({"attributes": {"user": 1}}), "expected a text"),
        ("/v1/reserve", json!({"attributes": ann, "cost": -1}), "expected a cost"),
        ("/v1/reserve", json!({"attributes": ann, "costs": {"tokens": 1.5}}), "expected a cost"),
        ("/v1/reserve", json!({"attributes": ann, "costs": {"tokens": null}}), "expected a cost"),
        ("/v1/reserve", json!({"attributes": ann, "costs": {"tokns": 1}}), "\"tokns\" is not declared"),
        ("/v1/reserve", json!({"attributes": ann, "cost": 1, "costs": {}}), "`cost` beside `costs`"),
        ("/v1/reserve", json!({"attributes": ann, "sets": []}), "`sets` excludes"),
        ("/v1/reserve", json!({"attributes": ann, "mode": "peek"}), "unknown field `mode`"),
        ("/v1/reserve", json!({"attributes": ann, "ttl": 60}), "ttl: `60` needs a unit"),
        ("/v1/reserve", json!({"attributes": ann, "ttl": "0s"}), "ttl: need more than 0s and at most 1h"),
        ("/v1/reserve", json!({"attributes": ann, "ttl": "61m"}), "ttl: need more than 0s and at most 1h"),
        ("/v1/reserve", json!({"attributes": ann, "ttl": null}), "expected a ttl"),
        ("/v1/reserve", json!({"attributes": ann, "id": ""}), "id: need 1 to 128 bytes"),
        ("/v1/reserve", json!({"attributes": ann, "id": "x".repeat(129)}), "id: need 1 to 128 bytes"),
        ("/v1/reserve", json!({"attributes": ann, "id": 7}), "expected a text"),
        ("/v1/settle", json!({"costs": {}}), "missing field `reservation`"),
        ("/v1/settle", json!({"reservation": text}), "missing field `costs`"),
        ("/v1/settle", json!({"reservation": text, "costs": null}), "expected an object of costs"),
        ("/v1/settle", json!({"reservation": text, "costs": {"tokens": -1}}), "expected a cost"),
        ("/v1/settle", json!({"reservation": text, "costs": {"tokens": 0.5}}), "expected a cost"),
        ("/v1/settle", json!({"reservation": text, "costs": {"tokens": null}}), "expected a cost"),
        ("/v1/settle", json!({"reservation": text, "costs": {"tokens": 1, "tokns": 1}}), "is not declared"),
        ("/v1/settle", json!({"reservation": text, "costs": {}, "cost": 1}), "unknown field `cost`"),
        ("/v1/settle", json!({"reservation": 1, "costs": {}}), "expected a text"),
        ("/v1/settle", json!({"reservation": long, "costs": {}}), "longer than any reservation"),
        ("/v1/settle", json!({"reservation": cut, "costs": {}}), "the text is damaged"),
        ("/v1/settle", json!({"reservation": many, "costs": {}}), "more counters than a request can have"),
        ("/v1/settle", json!({"reservation": twice, "costs": {}}), "names a counter twice"),
        ("/v1/settle", json!({"reservation": swapped, "costs": {}}), "does not begin with `r1.`"),
        ("/v1/settle", json!({"reservation": "", "costs": {}}), "does not begin with `r1.`"),
        ("/v1/release", json!({}), "missing field `reservation`"),
        ("/v1/release", json!({"reservation": text, "costs": {}}), "unknown field `costs`"),
        ("/v1/release", json!({"reservation": cut}), "the text is damaged"),
        ("/v1/release", json!({"reservation": long}), "longer than any reservation"),
        ("/v1/release", json!({"reservation": many}), "more counters than a request can have"),
        ("/v1/renew", json!({"ttl": "60s"}), "missing field `reservation`"),
        ("/v1/renew", json!({"reservation": text, "ttl": "0s"}), "ttl: need more than 0s and at most 1h"),
        ("/v1/renew", json!({"reservation": text, "ttl": "1d"}), "ttl: need more than 0s and at most 1h"),
        ("/v1/renew", json!({"reservation": text, "ttl": 60}), "ttl: `60` needs a unit"),
        ("/v1/renew", json!({"reservation": "r1.AAAA"}), "the text is too short"),
        ("/v1/renew", json!({"reservation": many}), "more counters than a request can have"),
    ];
    for (path, body, expected) in &cases {
        let detail = problem(&post(&mut client, path, body), 400);
        assert!(detail.contains(expected), "{path} {body:.80}: {detail}");
    }
    assert_eq!(left(&mut client), before);
    let settled = sent(&mut client, "/v1/settle", &settlement(&made, &json!({"tokens": 1})));
    assert_eq!(settled["settled"], json!(true), "the reservation is as it was");
}

#[test]
fn a_made_up_text_finds_nothing() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let made = reserve(&mut client, 100);
    let before = left(&mut client);
    for (path, costs) in [("/v1/settle", Some(json!({"requests": 0}))), ("/v1/release", None)] {
        let mut body = json!({"reservation": MADE_UP});
        if let Some(costs) = costs {
            body["costs"] = costs;
        }
        let expected = json!({"settled": false, "rules": [{"rule": "uploads", "name": "Uploads",
            "key": "uploads|user=ann", "unit": "requests", "status": "not_outstanding"}]});
        assert_eq!(sent(&mut client, path, &body), expected, "{path}");
    }
    let renewed = sent(&mut client, "/v1/renew", &json!({"reservation": MADE_UP}));
    assert_eq!(renewed["renewed"], json!(false));
    // Ids of other counters and of removed rules are no keys either.
    assert_eq!(left(&mut client), before);
    let service = service
        .ruled_by("rules: [{id: other, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}]");
    let removed = sent(&mut client, "/v1/settle", &settlement(&made, &json!({})));
    assert_eq!(removed["settled"], json!(false), "{removed}");
    let statuses =
        removed["rules"].as_array().unwrap().iter().map(|rule| (&rule["status"], rule.get("unit")));
    assert!(statuses.into_iter().all(|status| status == (&json!("rule_removed"), None)), "{removed}");
    drop(service);
}

#[test]
fn a_check_says_which_rules_it_skips() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let ann = json!({"attributes": {"user": "ann"}, "costs": {"tokens": 1}});
    let checked = check(&mut client, &ann);
    let skipped = json!([{"rule": "uploads", "name": "Uploads",
        "reason": "a check holds nothing; this rule limits reservations (/v1/reserve)"}]);
    assert_eq!((&checked["allowed"], &checked["skipped"]), (&json!(true), &skipped));
    let batch = check(&mut client, &json!([ann, {"attributes": {"tenant": "acme"}}]));
    assert_eq!((&batch[0]["skipped"], batch[1].get("skipped")), (&skipped, None));
    let metrics = client.send("GET", "/metrics", &[], "").body;
    assert!(
        metrics.contains("trypema_rules_skipped_total{rule=\"uploads\",reason=\"needs_reservation\"} 2\n")
    );
    assert!(
        metrics.contains("trypema_rules_skipped_total{rule=\"uploads\",reason=\"missing\"} 1\n"),
        "{metrics}"
    );
    let explained = client.send("POST", "/v1/explain", &[], &ann.to_string()).json();
    let rules = explained["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["rule"] == "uploads" && rule["left"] == 2), "{explained}");
}

#[test]
fn administrators_release_what_they_see() {
    let settings = "admin_token: correct-horse-battery\nreader_token: correct-horse-reader";
    let service = InProcess::start(settings).ruled_by(RULES);
    let (mut check, mut admin) = (service.check_client(), service.admin_client());
    let reader = [("authorization", "Bearer correct-horse-reader")];
    let editor = [("authorization", "Bearer correct-horse-battery")];
    let key = "/v1/keys/uploads%7Cuser=ann";
    let show = |admin: &mut Client| admin.send("GET", key, &reader, "").json();
    assert_eq!(show(&mut admin).get("holders"), None);
    let made = reserve(&mut check, 100);
    service.clock.advance(Duration::from_secs(20));
    reserve(&mut check, 100);
    let holders = show(&mut admin)["holders"].clone();
    let ids: Vec<&str> =
        holders.as_array().unwrap().iter().map(|holder| holder["id"].as_str().unwrap()).collect();
    let holder = |id: &str, age_ms: u64, expires_in_ms: u64| json!({"id": id, "units": 1, "age_ms": age_ms, "expires_in_ms": expires_in_ms});
    assert_eq!(holders, json!([holder(ids[0], 20_000, 100_000), holder(ids[1], 0, 120_000)]));

    let path = format!("{key}/reservations/{}", ids[0]);
    problem(&admin.send("DELETE", &path, &[], ""), 401);
    problem(&admin.send("DELETE", &path, &reader, ""), 403);
    assert_eq!(show(&mut admin)["holders"], holders);
    let mut release = |path: &str| admin.send("DELETE", path, &editor, "");
    let first = release(&path).json();
    assert_eq!(first, json!({"key": "uploads|user=ann", "id": ids[0], "released": true}));
    assert_eq!(release(&path).json()["released"], json!(false));
    problem(&release(&format!("{key}/reservations/{}", &ids[0][1..])), 400);
    problem(&release(&format!("/v1/keys/nobody/reservations/{}", ids[0])), 404);
    problem(&admin.send("GET", &path, &reader, ""), 405);
    assert_eq!(show(&mut admin)["holders"], json!([holder(ids[1], 0, 120_000)]));

    // At its other counters, the reservation is as it was.
    let settled = sent(&mut check, "/v1/settle", &settlement(&made, &json!({"tokens": 10})));
    let statuses: Vec<&Value> =
        settled["rules"].as_array().unwrap().iter().map(|rule| &rule["status"]).collect();
    assert_eq!(statuses, ["settled", "settled", "not_outstanding"]);
    assert_eq!(settled["settled"], json!(true));
}
