//! Hashed attributes: rules match values, and nobody reads them.

use std::process::Command;

use serde_json::{Value, json};
use trypema_testkit::redis::Server;

use crate::client::Client;
use crate::harness::{Service, trypema};
use crate::in_process::InProcess;

const SETTINGS: &str = "
hash_secret: 0123456789abcdef0123456789abcdef
forward_auth:
  profiles:
    api-key: {attributes: {api_key: {header: X-Api-Key, hash: hmac-sha256}}}
";
const RULES: &str = "
rules:
  - {id: each, scope: tenant, key_pattern: '{api_key}', strategy: {fixed_window: {limit: 2, window: 1h}}}
overrides:
  - {rule: each, key: {api_key: root-of-all-keys}, strategy: {fixed_window: {limit: 50, window: 1h}}}
block:
  api_key: [stolen-key]
";

fn forward(client: &mut Client, key: &str) -> u16 {
    let headers = [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.9"), ("x-api-key", key)];
    client.send("GET", "/v1/forward-auth/api-key", &headers, "").status
}

fn check(client: &mut Client, key: &str) -> Value {
    client.send("POST", "/v1/check", &[], &json!({"attributes": {"api_key": key}}).to_string()).json()
}

#[test]
fn rules_match_the_value_and_readers_see_the_hash() {
    let service = InProcess::start(SETTINGS).ruled_by(RULES);
    let mut client = service.client();
    assert_eq!(forward(&mut client, "secret-key"), 200);
    let answer = check(&mut client, "secret-key");
    let rule = &answer["rules"][0];
    assert_eq!(rule["remaining"], 0, "both front ends use one counter: {answer}");
    let counter = rule["key"].as_str().unwrap().to_owned();
    assert!(
        counter.starts_with("each|api_key=hmac:") && !answer.to_string().contains("secret-key"),
        "{answer}"
    );
    assert_eq!(forward(&mut client, "secret-key"), 429);
    assert_eq!(check(&mut client, "root-of-all-keys")["rules"][0]["limit"], 50);
    assert_eq!(forward(&mut client, "stolen-key"), 403);
    let listed = check(&mut client, "stolen-key");
    assert!(listed["outcome"] == "blocked" && !listed.to_string().contains("stolen-key"), "{listed}");

    for name in ["each|api_key=secret-key", &counter] {
        let path = format!("/v1/keys/{}", name.replace('|', "%7C"));
        let shown = client.send("GET", &path, &[], "").json();
        assert_eq!((&shown["key"], &shown["remaining"]), (&json!(counter), &json!(0)), "{name}");
    }
    assert_eq!(client.send("DELETE", "/v1/keys/each%7Capi_key=secret-key", &[], "").json()["existed"], true);
    assert_eq!(forward(&mut client, "secret-key"), 200);
}

#[test]
fn mistakes_are_named() {
    let of = |settings: &str| {
        Service::refused(|directory| {
            std::fs::write(directory.join("trypema.yaml"), settings).unwrap();
            let mut command = trypema();
            command.args(["serve", "--listen", "127.0.0.1:0", "--config", "trypema.yaml"]);
            command.current_dir(directory);
            command
        })
    };
    let profile = "forward_auth: {profiles: {a: {attributes: {k: {header: X-K, hash: hmac-sha256}}}}}\n";
    let both = "forward_auth: {profiles: {a: {attributes: {k: {header: X-K, hash: hmac-sha256}}}, b: {attributes: {k: X-K}}}}\n";
    let secret = format!("hash_secret: {}\n", "s".repeat(32));
    for (settings, expected) in [
        (profile.to_owned(), "hash_secret: is required by `hash` of an attribute"),
        (format!("{profile}hash_secret: short\n"), "hash_secret: need at least 32 characters"),
        (format!("previous_{secret}"), "hash_secret: is required by previous_hash_secret"),
        (secret.clone() + both, "forward_auth.profiles.b.attributes.k: needs `hash`"),
        (secret.clone() + &profile.replace("hmac-sha256", "md5"), "hmac-sha256"),
    ] {
        let log = of(&settings);
        assert!(log.contains(expected) && !log.contains(&"s".repeat(32)), "{settings}: {log}");
    }
}

/// All servers of a Redis have one secret, or the old one and the new one.
#[test]
fn a_server_with_another_secret_does_not_start() {
    let redis = Server::shared().unwrap();
    let (url, prefix) = (redis.url(), redis.unique_prefix());
    let (old, new) = ("o".repeat(32), "n".repeat(32));
    let flags = |secret: &str, previous: &str| {
        let flags = ["--redis-url", url, "--redis-prefix", &prefix, "--hash-secret", secret];
        let previous = ["--previous-hash-secret", previous];
        let previous = if previous[1].is_empty() { &[][..] } else { &previous };
        flags.iter().chain(previous).map(|flag| (*flag).to_owned()).collect::<Vec<_>>()
    };
    let serve = |secret: &str, previous: &str| -> Command {
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags(secret, previous));
        command
    };
    let starts = |secret: &str, previous: &str| drop(Service::of(|_| serve(secret, previous)));
    let is_refused = |secret: &str| {
        let log = Service::refused(|_| serve(secret, ""));
        assert!(log.contains("hash_secret: the servers that use this Redis have another secret"), "{log}");
        assert!(!log.contains(&old) && !log.contains(&new), "{log}");
    };
    starts(&old, "");
    starts(&old, "");
    is_refused(&new);
    starts(&new, &old);
    is_refused(&old);
    starts(&new, "");
    starts(&new, &old);
}
