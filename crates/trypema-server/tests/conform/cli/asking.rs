//! `trypema check` and `trypema explain`.

use super::run;
use crate::harness::Service;
use crate::in_process::TOKEN;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 365d}}}
  - {id: searches, name: Searches of a user, scope: user, endpoints: [/search], strategy: {fixed_window: {limit: 9, window: 365d}}}
  - {id: payments, scope: tenant, endpoints: [/pay], if_missing: error, strategy: {fixed_window: {limit: 9, window: 365d}}}
  - {id: logins, scope: user, endpoints: [/login], strategy: {abuse: {temp: {window: 60s, threshold: 2, block: 10m}, long: {window: 1h, threshold: 9, block: 1d}}}}
";

#[test]
fn check_ends_with_0_1_or_2() {
    let service = Service::with_rules(RULES, &[]);
    let server = format!("http://{}", service.address);
    let allowed = run(["check", "user=ann", "--server", &server]);
    assert_eq!((allowed.code, allowed.err.as_str()), (Some(0), ""), "{allowed:?}");
    assert!(allowed.out.contains("allowed") && allowed.out.contains("1 of 2 left"), "{}", allowed.out);
    assert_eq!(run(["check", "user=ann", "--peek", "--cost", "1", "--server", &server]).code, Some(0));
    assert_eq!(run(["check", "user=ann", "--peek", "--cost", "2", "--server", &server]).code, Some(1));
    assert_eq!(run(["check", r#"{"user": "ann"}"#, "--server", &server]).code, Some(0));
    let twice = run(["check", r#"{"user": "ann"}"#, "user=bob", "--server", &server]);
    assert_eq!(twice.code, Some(2), "{twice:?}");
    assert!(twice.err.contains("attribute \"user\" is given twice"), "{twice:?}");
    let denied = run(["check", "user=ann", "--server", &format!("{server}/")]);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.out.contains("denied by per-user; try again in"), "{}", denied.out);
    let json = run(["check", "user=ann", "--json", "--server", &server]);
    let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &answer["decided_by"]), (Some(1), &serde_json::json!("per-user")));
    let never = run(["check", "user=ann", "--cost", "3", "--server", &server]);
    assert!(never.out.contains("retrying will not succeed"), "{}", never.out);
    let several = run(["check", "user=bob", "endpoint=/search", "note=a=b", "--server", &server]);
    assert!(several.out.contains("searches|user=bob (Searches of a user) allows"), "{}", several.out);
    run(["check", "user=eve", "endpoint=/login", "--server", &server]);
    let blocked = run(["check", "user=eve", "endpoint=/login", "--server", &server]);
    let counted = "; 2 attempts in the short window, 2 in the long one, blocked by the temp window";
    assert!(blocked.out.contains(counted), "{}", blocked.out);
    let refused = run(["check", "endpoint=/pay", "--server", &server]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.err.contains("the request has no \"tenant\", which rule \"payments\" needs"),
        "{refused:?}"
    );
}

#[test]
fn who_cannot_be_asked_is_2() {
    let nobody = trypema_testkit::program::FreePort::any().unwrap();
    let url = format!("http://127.0.0.1:{}", nobody.number());
    for command in ["check", "explain"] {
        let ran = run([command, "user=ann", "--server", &url]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let told = format!("trypema: {url}: connection refused");
        assert!(ran.err.starts_with(&told) && ran.err.contains("--server"), "{}", ran.err);
    }
    let service = Service::with_rules(RULES, &["--admin-token", TOKEN]);
    let server = format!("http://{}", service.admin_address());
    let refused = run(["explain", "user=ann", "--server", &server]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("401") && refused.err.contains("--admin-token-file"), "{}", refused.err);
    assert_eq!(run(["explain", "user=ann", "--server", &server, "--admin-token", TOKEN]).code, Some(0));
    let wrong_listener = run(["explain", "user=ann", "--server", &format!("http://{}", service.address)]);
    assert_eq!(wrong_listener.code, Some(2));
    assert!(
        wrong_listener.err.contains("404") && wrong_listener.err.contains("admin_listen"),
        "{wrong_listener:?}"
    );
}

#[test]
fn the_server_can_be_a_variable() {
    let service = Service::with_rules(RULES, &["--admin-token", TOKEN]);
    for command in ["check", "explain"] {
        let mut trypema = crate::harness::trypema();
        trypema.env("TRYPEMA_SERVER", format!("http://{}", service.address));
        trypema.env("TRYPEMA_ADMIN_SERVER", format!("http://{}", service.admin_address()));
        trypema.env("TRYPEMA_ADMIN_TOKEN", TOKEN).args([command, "user=ann"]);
        assert_eq!(trypema.output().unwrap().status.code(), Some(0), "{command}");
    }
}

#[test]
fn explain_asks_a_service_or_reads_rules() {
    let service = Service::with_rules(RULES, &["--admin-token", TOKEN]);
    let server = format!("http://{}", service.address);
    run(["check", "user=ann", "--cost", "2", "--server", &server]);
    let admin = format!("http://{}", service.admin_address());
    let asked = run(["explain", "user=ann", "--admin-token", TOKEN, "--server", &admin]);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    assert!(asked.out.contains("denied by per-user"), "{}", asked.out);
    assert!(asked.out.contains("per-user|user=ann denies: 0 of 2 left"), "{}", asked.out);
    assert!(asked.out.contains("searches (Searches of a user): does not apply, "), "{}", asked.out);
    let pay = run(["explain", "endpoint=/pay", "--admin-token", TOKEN, "--server", &admin]);
    let missing = "payments denies: the request has no \"tenant\" (if_missing: error)";
    assert!(pay.code == Some(0) && pay.out.contains(missing), "{pay:?}");
    let file = service.rules_file();
    let read = run(["explain".as_ref(), "user=ann".as_ref(), "--rules".as_ref(), file.as_os_str()]);
    assert_eq!(read.code, Some(0), "{read:?}");
    assert!(read.out.contains("per-user|user=ann allows: 2 of 2 left"), "{}", read.out);
    assert!(read.out.contains("searches (Searches of a user): does not apply, "), "{}", read.out);
    let missing = run(["explain", "user=ann", "--rules", "/nowhere/rules.yaml"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("/nowhere/rules.yaml"), "{}", missing.err);
}

const TOKENS: &str = "
units: [tokens]
rules:
  - {id: requests, scope: user, strategy: {fixed_window: {limit: 9, window: 365d}}}
  - {id: tokens, scope: user, unit: tokens, when: {model: ['gpt-*']}, if_missing: deny, strategy: {fixed_window: {limit: 100, window: 365d}}}
  - {id: tenant, scope: tenant, unit: tokens, strategy: {fixed_window: {limit: 50, window: 365d}}}
";

#[test]
fn costs_in_units_and_further_sets_are_asked_for() {
    let service = Service::with_rules(TOKENS, &["--admin-token", TOKEN]);
    let server = format!("http://{}", service.address);
    let check = |arguments: &[&str]| {
        let given = ["check", "user=ann", "model=gpt-5"].into_iter().chain(arguments.iter().copied());
        run(given.chain(["--server", &server]))
    };
    let allowed = check(&["--cost", "tokens=60", "--cost", "2"]);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(allowed.out.contains("requests|user=ann allows: 7 of 9 left"), "{}", allowed.out);
    assert!(allowed.out.contains("tokens|user=ann allows: 40 of 100 tokens left"), "{}", allowed.out);
    let missing = check(&[]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.out.contains("tokens denies: the request has no cost in \"tokens\""), "{}", missing.out);
    let set = r#"{"attributes": {"tenant": "acme"}, "costs": {"tokens": 51}}"#;
    let together = check(&["--cost", "tokens=1", "--set", set]);
    assert_eq!(together.code, Some(1), "{together:?}");
    assert!(together.out.contains("denied by tenant"), "{}", together.out);
    for (arguments, expected) in [
        (&["--cost", "tokens=-1"][..], "need a whole number, 0 or more"),
        (&["--cost", "1.5"], "need a whole number, 0 or more"),
        (&["--cost", "1", "--cost", "requests=2"], "the cost in \"requests\" is given twice"),
        (&["--cost", "tokns=1"], "unit \"tokns\" is not declared"),
        (&["--set", "[]"], "need a JSON object"),
    ] {
        let refused = check(arguments);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(expected), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn a_file_explains_units_and_sets() {
    let service = Service::with_rules(TOKENS, &[]);
    let file = service.rules_file();
    let set = r#"{"attributes": {"tenant": "acme"}, "costs": {"tokens": 20}}"#;
    let path = file.to_str().unwrap();
    let ran =
        run(["explain", "user=ann", "model=other", "--cost", "tokens=1", "--set", set, "--rules", path]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("tenant|tenant=acme allows: 50 of 50 tokens left"), "{}", ran.out);
    assert!(
        ran.out.contains("tokens: does not apply, the rule is for other values of \"model\""),
        "{}",
        ran.out
    );
    let wrong = run(["explain", "user=ann", "--cost", "tokns=1", "--rules", path]);
    assert!(wrong.code == Some(2) && wrong.err.contains("unit \"tokns\" is not declared"), "{wrong:?}");
}
