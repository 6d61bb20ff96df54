//! `trypema reserve`, `settle`, `release` and `renew`, and the reservations of `trypema keys`.

use serde_json::{Value, json};

use super::run;
use crate::harness::Service;
use crate::in_process::TOKEN;

const RULES: &str = "
units: [tokens]
rules:
  - {id: tokens, scope: user, unit: tokens, strategy: {fixed_window: {limit: 100, window: 365d}}}
  - {id: uploads, name: Uploads, scope: user, strategy: {concurrency: {limit: 1, hold: 1h}}}
";

#[test]
fn a_reservation_is_made_renewed_and_settled() {
    let service = Service::with_rules(RULES, &[]);
    let server = format!("http://{}", service.address);
    let reserve = |more: &[&str]| {
        let arguments = ["reserve", "user=ann", "--cost", "tokens=80", "--server", &server];
        run(arguments.iter().chain(more))
    };
    let made = reserve(&["--ttl", "2m", "--id", "upload-1"]);
    assert_eq!((made.code, made.err.as_str()), (Some(0), ""), "{made:?}");
    assert!(made.out.contains("uploads|user=ann (Uploads) allows: 0 of 1 left"), "{}", made.out);
    assert!(made.out.contains("\nexpires in 120000 ms\n"), "{}", made.out);
    // The last line is the reservation, so that a script can read it.
    let text = made.out.lines().last().unwrap();
    let again = reserve(&["--ttl", "2m", "--id", "upload-1"]);
    assert_eq!(again.out.lines().last(), Some(text), "{again:?}");
    assert!(again.out.contains("\nwas reserved before; expires in "), "{}", again.out);
    let denied = reserve(&[]);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.out.starts_with("denied by "), "{}", denied.out);
    let conflict = reserve(&["--id", "upload-1", "tenant=acme"]);
    assert_eq!(conflict.code, Some(2), "{conflict:?}");
    assert!(conflict.err.contains("409"), "{}", conflict.err);

    let renewed = run(["renew", text, "--ttl", "10m", "--server", &server]);
    assert_eq!((renewed.code, renewed.out.as_str()), (Some(0), "renewed; expires in 600000 ms\n"));
    let settled = run(["settle", text, "--cost", "tokens=15", "--server", &server]);
    assert_eq!((settled.code, settled.err.as_str()), (Some(0), ""), "{settled:?}");
    assert!(settled.out.starts_with("settled\n"), "{}", settled.out);
    assert!(settled.out.contains("tokens|user=ann: counted 15 tokens, reserved 80; 65 free again\n"));
    let twice = run(["settle", text, "--cost", "tokens=15", "--server", &server]);
    assert_eq!(twice.code, Some(1), "{twice:?}");
    assert!(twice.out.starts_with("not settled\n") && twice.out.contains("settled or released before"));
    let late = run(["renew", text, "--server", &server]);
    assert_eq!((late.code, late.out.starts_with("not renewed: ")), (Some(1), true), "{late:?}");

    let json = reserve(&["--json"]);
    let made: Value = serde_json::from_str(&json.out).unwrap();
    let text = made["reservation"].as_str().unwrap();
    let released = run(["release", text, "--json", "--server", &server]);
    let answer: Value = serde_json::from_str(&released.out).unwrap();
    assert_eq!((released.code, &answer["settled"]), (Some(0), &json!(true)), "{released:?}");
    let again = run(["release", text, "--server", &server]);
    assert_eq!((again.code, again.out.starts_with("not released\n")), (Some(1), true), "{again:?}");
}

#[test]
fn what_is_wrong_or_cannot_be_asked_is_2() {
    let nobody = trypema_testkit::program::FreePort::any().unwrap();
    let url = format!("http://127.0.0.1:{}", nobody.number());
    let service = Service::with_rules(RULES, &[]);
    let server = format!("http://{}", service.address);
    let commands: [&[&str]; 4] =
        [&["reserve", "user=ann"], &["settle", "r1.x"], &["release", "r1.x"], &["renew", "r1.x"]];
    for command in commands {
        let ran = run(command.iter().chain(&["--server", &url]));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.starts_with(&format!("trypema: {url}: connection refused")), "{}", ran.err);
    }
    for command in [&["settle", "r1.x"][..], &["release", "nonsense"], &["renew", ""]] {
        let ran = run(command.iter().chain(&["--server", &server]));
        assert!(ran.code == Some(2) && ran.err.contains("invalid reservation"), "{ran:?}");
    }
    for (more, expected) in [
        (&["--ttl", "2h"][..], "ttl: need more than 0s and at most 1h"),
        (&["--ttl", "60"], "ttl: `60` needs a unit"),
        (&["--id", ""], "id: need 1 to 128 bytes"),
        (&["--cost", "tokens=1", "--cost", "tokens=2"], "the cost in \"tokens\" is given twice"),
        (&["--cost", "tokns=1"], "is not declared"),
    ] {
        let ran = run(["reserve", "user=ann", "--server", &server].iter().chain(more));
        assert!(ran.code == Some(2) && ran.err.contains(expected), "{ran:?}");
    }
    let twice = run(["settle", "r1.x", "--cost", "tokens=1", "--cost", "tokens=1", "--server", &server]);
    assert!(twice.code == Some(2) && twice.err.contains("is given twice"), "{twice:?}");
}

#[test]
fn keys_show_and_release_holders() {
    let service = Service::with_rules(RULES, &["--admin-token", TOKEN]);
    let server = format!("http://{}", service.address);
    let admin = format!("http://{}", service.admin_address());
    let at_admin = ["--server", &admin, "--admin-token", TOKEN];
    let made = run(["reserve", "user=ann", "--cost", "tokens=80", "--server", &server]);
    let text = made.out.lines().last().unwrap();
    let key = "uploads|user=ann";
    let shown = run(["keys", "show", key].iter().chain(&at_admin));
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let id = shown["holders"][0]["id"].as_str().unwrap();
    assert_eq!((shown["holders"].as_array().map(Vec::len), id.len()), (Some(1), 32), "{shown}");

    let released = run(["keys", "release", key, id].iter().chain(&at_admin));
    assert_eq!(released.code, Some(0), "{released:?}");
    let answer: Value = serde_json::from_str(&released.out).unwrap();
    assert_eq!(answer, json!({"key": key, "id": id, "released": true}));
    let again = run(["keys", "release", key, id].iter().chain(&at_admin));
    assert!(again.code == Some(1) && again.err.contains("has no such reservation"), "{again:?}");
    let nonsense = run(["keys", "release", key, "../x"].iter().chain(&at_admin));
    assert!(nonsense.code == Some(1) && nonsense.err.contains("32 hexadecimal digits"), "{nonsense:?}");
    // The tokens are still reserved.
    let settled = run(["settle", text, "--cost", "tokens=1", "--server", &server]);
    assert_eq!(settled.code, Some(0), "{settled:?}");
    assert!(settled.out.contains("uploads|user=ann (Uploads): not outstanding"), "{}", settled.out);
    assert!(settled.out.contains("tokens|user=ann: counted 1 tokens, reserved 80; 79 free again"));
}
