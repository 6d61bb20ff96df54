//! `trypema keys` with rules in a file.

use crate::client::Client;
use crate::harness::{Service, trypema};

use super::Ran;

const RULES: &str = "
rules:
  - id: logins
    scope: user
    strategy: {abuse: {temp: {window: 1h, threshold: 3, block: 1h}, long: {window: 24h, threshold: 99, block: 24h}}}
";
const KEY: &str = "logins|user=ann";

fn keys(service: &Service, verb: &str) -> Ran {
    let admin = service.admin.as_ref().unwrap();
    let server = format!("http://{}", admin.address);
    let mut command = trypema();
    command.args(["keys", verb, KEY, "--server", &server]);
    command.env("TRYPEMA_ADMIN_TOKEN", admin.token.as_ref().unwrap());
    command.output().unwrap().into()
}

/// Returns whether each of three attempts is allowed.
fn attempts(service: &Service) -> [bool; 3] {
    let mut client = Client::connect(service.address);
    [(); 3].map(|()| {
        let reply = client.send("POST", "/v1/check", &[], r#"{"attributes": {"user": "ann"}}"#);
        reply.json()["allowed"] == true
    })
}

#[test]
fn unblock_ends_the_block_of_an_abuse_rule() {
    let service = Service::with_rules(RULES, &[]);
    assert_eq!(attempts(&service), [true, true, false]);
    let shown = keys(&service, "show");
    assert!(
        shown.out.contains(r#""scope": "temp""#) && shown.out.contains("block_ends_after_ms"),
        "{shown:?}"
    );
    let unblocked = keys(&service, "unblock");
    assert_eq!(unblocked.code, Some(0), "{unblocked:?}");
    assert_eq!(unblocked.out, "- block of logins|user=ann by logins (temp), with its attempts\n");
    assert_eq!(attempts(&service), [true, true, false], "the attempts are forgotten");

    keys(&service, "unblock");
    let nothing = keys(&service, "unblock");
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.err.contains("no abuse rule blocks it, either"), "{nothing:?}");
}
