//! A reservation is settled by another server than the one that made it, which was killed.

use serde_json::{Value, json};
use trypema_testkit::redis::Server;

use crate::client::Reply;
use crate::harness::Service;

const RULES: &str = "
units: [tokens]
rules:
  - {id: tokens, scope: user, unit: tokens, strategy: {token_bucket: {limit: 1000, window: 365d}}}
  - {id: requests, scope: user, strategy: {fixed_window: {limit: 10, window: 365d}}}
  - {id: uploads, scope: user, strategy: {concurrency: {limit: 1, hold: 1h}}}
";

fn server(redis: &Server, provider: &str) -> Service {
    let url = redis.url();
    // Long enough for a machine that runs many tests.
    let flags = ["--provider", provider, "--redis-url", &url, "--redis-deadline", "10s"];
    Service::with_rules(RULES, &flags)
}

fn reserve(service: &Service, body: &Value) -> Value {
    let reply = service.post("/v1/reserve", &body.to_string());
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn left(service: &Service, key: &str) -> Value {
    service.get(&format!("/v1/keys/{key}%7Cuser=ann")).json()["remaining"].clone()
}

#[test]
fn a_reservation_of_a_killed_server_is_settled_by_another() {
    for provider in ["redis", "hybrid"] {
        let redis = Server::start().unwrap();
        let (mut first, second) = (server(&redis, provider), server(&redis, provider));
        let ann = json!({"attributes": {"user": "ann"}, "costs": {"tokens": 800}, "ttl": "1h"});
        let with_id =
            json!({"attributes": {"user": "bob"}, "costs": {"tokens": 5}, "ttl": "1h", "id": "b-1"});
        let made = reserve(&first, &ann);
        assert_eq!((&made["allowed"], &made["repeated"]), (&json!(true), &json!(false)), "{made}");
        let named = reserve(&first, &with_id);
        first.program.signal("KILL").unwrap();
        first.program.end().unwrap();

        // The second server knows what the first one has reserved.
        let denied = reserve(&second, &ann);
        assert_eq!(denied["allowed"], json!(false), "{provider}: {denied}");
        assert_eq!(left(&second, "tokens"), json!(200), "{provider}");
        let again = reserve(&second, &with_id);
        assert_eq!(again["repeated"], json!(true), "{provider}: {again}");
        assert_eq!(again["reservation"], named["reservation"], "{provider}");

        let body = json!({"reservation": made["reservation"], "costs": {"tokens": 150}}).to_string();
        let settle = || -> Reply { second.post("/v1/settle", &body) };
        let settled = settle();
        assert_eq!(
            (settled.status, &settled.json()["settled"]),
            (200, &json!(true)),
            "{provider}: {settled:?}"
        );
        assert_eq!(left(&second, "tokens"), json!(850), "{provider}");
        assert_eq!(left(&second, "requests"), json!(9), "{provider}");
        assert_eq!(left(&second, "uploads"), json!(1), "{provider}");
        let twice = settle();
        assert_eq!((twice.status, &twice.json()["settled"]), (200, &json!(false)), "{provider}: {twice:?}");
        assert_eq!(left(&second, "tokens"), json!(850), "{provider}");

        let third = server(&redis, provider);
        let renewal = json!({"reservation": named["reservation"], "ttl": "30m"}).to_string();
        let renewed = third.post("/v1/renew", &renewal).json();
        assert_eq!(renewed, json!({"renewed": true, "expires_in_ms": 1_800_000}), "{provider}");
        let release = json!({"reservation": named["reservation"]}).to_string();
        let released = third.post("/v1/release", &release).json();
        assert_eq!(released["settled"], json!(true), "{provider}: {released}");
    }
}

#[test]
fn without_redis_nothing_is_reserved_settled_released_or_renewed() {
    for provider in ["redis", "hybrid"] {
        let redis = Server::start().unwrap();
        let service = server(&redis, provider);
        let ann = json!({"attributes": {"user": "ann"}, "costs": {"tokens": 8}});
        let text = reserve(&service, &ann)["reservation"].clone();
        let key = "/v1/keys/uploads%7Cuser=ann";
        let id = service.get(key).json()["holders"][0]["id"].as_str().unwrap().to_owned();
        redis.kill_9().unwrap();
        for (path, body) in [
            ("/v1/reserve", &ann),
            ("/v1/reserve?deny_status=429", &ann),
            ("/v1/settle", &json!({"reservation": text, "costs": {"tokens": 1}})),
            ("/v1/release", &json!({"reservation": text})),
            ("/v1/renew", &json!({"reservation": text})),
        ] {
            let reply = service.post(path, &body.to_string());
            assert_eq!(reply.status, 503, "{provider} {path}: {reply:?}");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{provider} {path}");
            assert_eq!(reply.header("retry-after"), Some("1"), "{provider} {path}");
            assert!(!reply.body.contains("127.0.0.1"), "{provider} {path}: {reply:?}");
        }
        let admin = service.admin.as_ref().unwrap();
        let release = admin.send("DELETE", &format!("{key}/reservations/{id}"), "");
        assert_eq!(release.status, 503, "{provider}: {release:?}");
        // What is wrong with a request is said without Redis, too.
        let wrong = json!({"reservation": text, "costs": {"tokns": 1}}).to_string();
        assert_eq!(service.post("/v1/settle", &wrong).status, 400, "{provider}");
    }
}
