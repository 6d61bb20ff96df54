//! What is asked and answered over HTTP.

use serde_json::json;

use crate::harness::Service;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
";

#[test]
fn a_limit_is_reached_and_told() {
    let service = Service::with_rules(RULES, &[]);
    let mut client = service.client();
    let mut check = || client.send("POST", "/v1/check", &[], r#"{"attributes":{"user":"ann"}}"#);
    let first = check();
    assert_eq!((first.status, &first.json()["allowed"]), (200, &json!(true)));
    assert_eq!(first.json()["rules"][0]["remaining"], json!(1));
    check();
    let denied = check().json();
    assert_eq!((&denied["allowed"], &denied["decided_by"]), (&json!(false), &json!("per-user")));
}
