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
        "check user=ann cost=4",
        "peek user=ann",
        "check user=ann cost=2",
        "check user=bob",
        "guess user=ann",
    ] {
        answers.push(client.ask(line).await.unwrap());
    }
    assert_eq!([&*answers[0], &*answers[1], &*answers[3]], ["allowed"; 3]);
    assert!(answers[2].starts_with("denied Some("), "{answers:?}");
    assert_eq!(answers[4], "error no such mode: guess");
}
