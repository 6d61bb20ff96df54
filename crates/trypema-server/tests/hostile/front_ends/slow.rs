//! Clients that send nothing, or too slowly.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::clients::{Client, Http2Client, LineClient, is_closed, is_open};
use super::decisions::Decisions;
use super::server::{HEADER_TIMEOUT, IDLE_TIMEOUT, REQUEST_TIMEOUT, Running};

#[tokio::test(flavor = "multi_thread")]
async fn silent_and_slow_lines_end_in_time() {
    silent_and_slow::<LineClient>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_and_slow_http2_ends_in_time() {
    silent_and_slow::<Http2Client>().await;
}

async fn silent_and_slow<C: Client>() {
    let server = Running::start(&Decisions::open(), "").await;
    let connect = || async { TcpStream::connect(C::address(&server)).await.unwrap() };
    let (silent, mut slow) = (connect().await, connect().await);
    slow.write_all(C::PART_OF_HEAD).await.unwrap();
    let mut good = C::connect(&server).await;
    assert_eq!(good.ask("first").await.as_deref(), Some("first"));
    good.witness().await;
    server.advance(HEADER_TIMEOUT).await;
    is_closed(slow).await;
    assert!(is_open(&silent));
    assert_eq!(good.ask("second").await.as_deref(), Some("second"), "it was idle for less than it may be");
    server.advance(IDLE_TIMEOUT - HEADER_TIMEOUT).await;
    is_closed(silent).await;
    assert_eq!(good.ask("third").await.as_deref(), Some("third"));
    assert_eq!(server.closed_early("timed_out"), 2.0);
    server.advance(IDLE_TIMEOUT).await;
    assert_eq!(good.ask("too late").await, None);
    server.wait_for_silence();
}

/// A part of a second request came with the first one.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_line_that_stops_ends_at_the_header_timeout() {
    let server = Running::start(&Decisions::open(), "").await;
    let mut client = TcpStream::connect(server.lines).await.unwrap();
    client.write_all(b"first\nseco").await.unwrap();
    let mut witness = LineClient::connect(&server).await;
    client.readable().await.unwrap();
    witness.witness().await;
    server.advance(HEADER_TIMEOUT).await;
    is_closed(client).await;
    assert!(witness.ask("x").await.is_some());
}

/// The time for a body is that of the connection: it begins anew with each request that has arrived, and never stops for one that has
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_ends_at_the_request_timeout() {
    let server = Running::start(&Decisions::open(), "").await;
    let mut client = Http2Client::connect(&server).await;
    let (response, _body) = client.begin("/", "begun", false).await.unwrap();
    // It is sent after the other one, and so read after it.
    assert!(client.ask("whole").await.is_some());
    for _ in 0..3 {
        server.advance(REQUEST_TIMEOUT / 2).await;
        assert!(client.ask("whole").await.is_some());
    }
    server.advance(REQUEST_TIMEOUT).await;
    assert!(response.await.is_err());
    server.wait_for_silence();
    assert_eq!(server.closed_early("timed_out"), 1.0);
}

/// A decision that hangs does not keep other clients out for longer than a decision may take.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_that_hang_give_way() {
    hanging::<LineClient>().await;
    hanging::<Http2Client>().await;
}

async fn hanging<C: Client>() {
    let decisions = Decisions::closed();
    let server = Running::start(&decisions, "max_connections: 4\n").await;
    let mut hanging = Vec::new();
    for _ in 0..4 {
        let mut client = C::connect(&server).await;
        hanging.push((client.send("x").await, client));
    }
    server.wait("all decisions to begin", || decisions.running() == 4);
    let refused = TcpStream::connect(C::address(&server)).await.unwrap();
    is_closed(refused).await;
    server.advance(std::time::Duration::from_secs(61)).await;
    let mut good = C::connect(&server).await;
    let answer = good.send("y").await;
    server.wait("the new client's decision", || decisions.running() == 5);
    decisions.open_gate();
    assert_eq!(answer.await.unwrap().as_deref(), Some("y"));
    server.wait("all decisions to end", || decisions.ended() == 5);
    assert_eq!(server.closed_early("refused"), 1.0);
}
