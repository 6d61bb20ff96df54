//! The end of a server, with requests under way.

use std::sync::Arc;
use std::time::Duration;

use super::clients::{Client, Http2Client, LineClient};
use super::decisions::Decisions;
use super::server::Running;

const CLIENTS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_loses_no_answer() {
    drained::<LineClient>().await;
    drained::<Http2Client>().await;
}

/// Every decision is answered, except those whose client had ended.
async fn drained<C: Client + 'static>() {
    let decisions = Decisions::open();
    let mut server = Running::start(&decisions, "").await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = C::connect(&server).await;
        clients.push(tokio::spawn(async move {
            let mut answered = 0;
            loop {
                let now = client.ask_many(10).await;
                answered += now;
                if now < 10 {
                    return answered;
                }
            }
        }));
    }
    server.wait("some load", || decisions.ended() > 200);
    server.stop();
    server.served.await.unwrap().unwrap();
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    assert_eq!(answered, decisions.ended(), "answered, decided");
}

/// What has begun when the server stops is answered once it is decided.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_under_way_are_answered() {
    under_way::<LineClient>().await;
    under_way::<Http2Client>().await;
}

async fn under_way<C: Client>() {
    let decisions = Decisions::closed();
    let mut server = Running::start(&decisions, "").await;
    let mut client = C::connect(&server).await;
    let answers = [client.send("a").await, client.send("b").await];
    server.wait("both decisions", || decisions.running() == 2);
    server.stop();
    let opening = Arc::clone(&decisions);
    tokio::spawn(async move {
        // Longer than the time that clients get to complete a request.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        opening.open_gate();
    });
    server.served.await.unwrap().unwrap();
    for answer in answers {
        assert!(answer.await.unwrap().is_some());
    }
}
