//! Clients that go away while their requests are decided.

use h2::Reason;

use super::clients::{Client, Http2Client, LineClient};
use super::decisions::Decisions;
use super::server::Running;

/// The rapid reset attack: decisions go on to their end, are counted, and count against their connection.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_whose_stream_is_reset_count_against_their_connection() {
    let decisions = Decisions::closed();
    let server = Running::start(&decisions, "").await;
    let mut client = Http2Client::connect(&server).await;
    for number in 0..10 {
        let (response, mut body) = client.begin("/", &number.to_string(), true).await.unwrap();
        server.wait("the decision to begin", || decisions.running() == number + 1);
        body.send_reset(Reason::CANCEL);
        drop(response);
    }
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(client.send("the rest").await);
    }
    server.wait("16 decisions", || decisions.running() == 16);
    assert_eq!(client.ask("one more").await, None);
    let mut other = Http2Client::connect(&server).await;
    let answer = other.send("another connection").await;
    server.wait("its decision", || decisions.running() == 17);
    decisions.open_gate();
    assert!(answer.await.unwrap().is_some());
    for answer in answers {
        assert!(answer.await.unwrap().is_some());
    }
    server.wait("all decisions to end", || decisions.ended() == 17);
    assert!(client.ask("one more").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_of_lost_connections_go_on() {
    lost::<LineClient>().await;
    lost::<Http2Client>().await;
}

async fn lost<C: Client>() {
    let decisions = Decisions::closed();
    let mut server = Running::start(&decisions, "").await;
    let mut client = C::connect(&server).await;
    let answers = [client.send("a").await, client.send("b").await];
    server.wait("both decisions", || decisions.running() == 2);
    drop((client, answers));
    decisions.open_gate();
    server.wait("both decisions to end", || decisions.ended() == 2);
    server.stop();
    server.served.await.unwrap().unwrap();
}
