//! The line protocol decides by the rules of the server.

use super::clients::{Client, LineClient};
use super::decisions::Decisions;
use super::server::Running;

/// The built-in rules permit a user five requests a minute.
#[tokio::test(flavor = "multi_thread")]
async fn lines_are_checked_by_the_rules_of_the_server() {
    let server = Running::start(&Decisions::open(), "").await;
    let mut client = LineClient::connect_to(server.checks).await;
    let mut answers = Vec::new();
    for line in [
        r#"- {"attributes": {"user": "ann"}, "cost": 4}"#,
        r#"- {"attributes": {"user": "ann"}, "mode": "peek"}"#,
        r#"- {"attributes": {"user": "ann"}, "cost": 2}"#,
        r#"- {"attributes": {"user": "bob"}}"#,
        r#"- {"attributes": {"user": "ann"}, "mode": "guess"}"#,
    ] {
        answers.push(client.ask(line).await.unwrap());
    }
    let is_allowed = |answer: &String| answer.contains(r#""allowed":true,"outcome":"allowed""#);
    assert_eq!(answers.iter().map(is_allowed).collect::<Vec<_>>(), [true, true, false, true, false]);
    assert!(answers[4].contains("unknown variant `guess`"), "{answers:?}");
}
