//! Clients that do not read their answers, and clients that send too much.

use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::clients::{Client, Http2Client, LineClient, is_closed};
use super::decisions::Decisions;
use super::server::{REQUEST_TIMEOUT, Running};

/// More than a stream's window and the buffers of the system, less than a client may hold.
const LONG: usize = 512 * 1024;
const FLOOD: usize = 2_000;
/// A write that takes this long waits for the server to read.
const STUCK: Duration = Duration::from_secs(1);

/// At most 16 of a connection's requests are decided at a time, whatever it sends. Every line is answered in the end; HTTP/2 refuses
/// streams, and closes a connection that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_decided_16_at_a_time() {
    let (answered, ended) = flood::<LineClient>().await;
    assert_eq!((answered, ended), (FLOOD, FLOOD));
    let (answered, ended) = flood::<Http2Client>().await;
    assert!(answered > 0 && answered <= ended, "{answered} of {ended} decisions");
}

/// Sends many requests at once, and returns the number of answers and that of decisions.
async fn flood<C: Client>() -> (usize, usize) {
    let decisions = Decisions::open();
    let server = Running::start(&decisions, "").await;
    let mut client = C::connect(&server).await;
    assert!(client.ask("first").await.is_some(), "it knows the server's settings now");
    let answered = client.ask_many(FLOOD).await;
    assert!(decisions.most() <= 16, "{} at a time", decisions.most());
    let ended = decisions.ended() - 1;
    assert!(C::connect(&server).await.ask("a good client").await.is_some());
    (answered, ended)
}

/// Beyond 16 decisions that hang, HTTP/2 says that it is too busy, and a line waits in its socket.
#[tokio::test(flavor = "multi_thread")]
async fn beyond_16_decisions_a_connection_is_too_busy() {
    let decisions = Decisions::closed();
    let server = Running::start(&decisions, "").await;
    let (mut lines, mut http2) = (LineClient::connect(&server).await, Http2Client::connect(&server).await);
    let mut answers = Vec::new();
    for number in 0..16 {
        answers.push(http2.send(&number.to_string()).await);
    }
    server.wait("16 decisions", || decisions.running() == 16);
    assert_eq!(http2.ask("one more").await, None, "refused");
    for number in 0..20 {
        answers.push(lines.send(&number.to_string()).await);
    }
    server.wait("16 more decisions", || decisions.running() == 32);
    decisions.open_gate();
    assert!(join_all(answers).await.into_iter().all(|answer| answer.is_ok_and(|answer| answer.is_some())));
    assert_eq!(decisions.ended(), 36);
    assert!(http2.ask("one more").await.is_some());
}

/// Lines whose answers nobody reads.
#[tokio::test(flavor = "multi_thread")]
async fn unread_lines_end_at_the_request_timeout() {
    let decisions = Decisions::open();
    let server = Running::start(&decisions, "").await;
    let mut client = TcpStream::connect(server.lines).await.unwrap();
    let line = format!("{}\n", "x".repeat(4_000));
    // The server stops reading once it cannot write, so the client cannot write, either.
    while timeout(STUCK, client.write_all(line.as_bytes())).await.is_ok_and(|written| written.is_ok()) {}
    let ended = decisions.ended();
    assert_eq!(LineClient::connect(&server).await.ask_many(100).await, 100);
    server.advance(REQUEST_TIMEOUT).await;
    is_closed(client).await;
    assert!(decisions.ended() <= ended + 100 + 16);
    assert!(LineClient::connect(&server).await.ask("x").await.is_some());
    assert_eq!(server.closed_early("timed_out"), 1.0);
}

/// A stream that nobody reads delays none of the 15 beside it. At its timeout, the connection begins nothing new; it is closed when
/// nothing else is left.
#[tokio::test(flavor = "multi_thread")]
async fn one_unread_stream_beside_15_good_ones() {
    let decisions = Decisions::open();
    let server = Running::start(&decisions, "").await;
    let mut client = Http2Client::connect(&server).await;
    let (response, _) = client.begin("/", &"x".repeat(LONG), true).await.unwrap();
    let unread = response.await.unwrap();
    assert_eq!(server.metric("trypema_buffered_bytes"), LONG as f64, "it is accounted for");
    for _ in 0..20 {
        assert_eq!(client.ask_many(15).await, 15);
        server.advance(REQUEST_TIMEOUT / 40).await;
    }
    let mut numbers = client.stream().await;
    server.advance(REQUEST_TIMEOUT / 2).await;
    // Until the client learns that the connection finishes.
    while client.ask("still served").await.is_some() {}
    server.numbers.send(1).unwrap();
    let part = numbers.data().await.unwrap().unwrap();
    assert_eq!(part, "1\n", "the good stream goes on");
    assert_eq!(server.closed_early("timed_out"), 0.0);
    drop((numbers, part));
    server.wait("the stream to end", || server.metric("trypema_streams") == 0.0);
    server.advance(REQUEST_TIMEOUT).await;
    server.wait_for_silence();
    assert_eq!(server.closed_early("timed_out"), 1.0);
    drop(unread);
}

/// Unread answers give way to the requests of other peers, even if their connection decides something all the time.
#[tokio::test(flavor = "multi_thread")]
async fn unread_answers_give_way_though_their_connection_decides() {
    let server = Running::start(&Decisions::open(), "max_buffered_bytes: 33554432\n").await;
    let mut attacker = Http2Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), &server).await;
    let mut unread = Vec::new();
    while unread.len() < 30 {
        let (response, _) = attacker.begin("/", &"x".repeat(2 * LONG), true).await.unwrap();
        match response.await {
            Ok(response) => unread.push(response),
            Err(_) => break,
        }
    }
    assert!(server.metric("trypema_buffered_bytes") > 24.0 * 1024.0 * 1024.0);
    let deciding = tokio::spawn(async move { while attacker.ask_many(2).await > 0 {} });
    let mut good = Http2Client::connect(&server).await;
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(good.send(&"x".repeat(2 * LONG)).await);
    }
    assert!(join_all(answers).await.into_iter().all(|answer| answer.is_ok_and(|answer| answer.is_some())));
    deciding.await.unwrap();
    assert_eq!(server.closed_early("out_of_memory"), 1.0);
    drop((good, unread));
    server.wait_for_silence();
}
