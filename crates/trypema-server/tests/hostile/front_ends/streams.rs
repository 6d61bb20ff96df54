//! Streams: answers that last for hours.

use std::time::Duration;

use futures_util::future::join_all;
use h2::RecvStream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::clients::{Client, Http2Client};
use super::decisions::Decisions;
use super::server::{PATIENCE, REQUEST_TIMEOUT, Running};
use crate::front_ends_of_tests::LONG;
use crate::timing::Stopwatch;

const AN_HOUR: Duration = Duration::from_secs(3_600);
/// The shutdown deadline, of which a stream that is told to end needs little.
const DEADLINE: Duration = Duration::from_secs(10);

/// A stream over either version of HTTP.
enum Reader {
    Http1(BufReader<TcpStream>),
    Http2(RecvStream),
}

impl Reader {
    async fn http1(server: &Running) -> Self {
        let mut stream = TcpStream::connect(server.http1_stream).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("transfer-encoding: chunked"), "{head}");
        Self::Http1(stream)
    }

    /// Reads the next line, or an empty text at the end.
    async fn line(&mut self) -> String {
        match self {
            Self::Http1(stream) => {
                let (mut size, mut chunk, mut end) = (String::new(), String::new(), String::new());
                stream.read_line(&mut size).await.unwrap();
                if size.trim() != "0" {
                    stream.read_line(&mut chunk).await.unwrap();
                }
                stream.read_line(&mut end).await.unwrap();
                chunk
            }
            Self::Http2(body) => match body.data().await {
                Some(data) => {
                    let data = data.unwrap();
                    let _ = body.flow_control().release_capacity(data.len());
                    String::from_utf8(data.to_vec()).unwrap()
                }
                None => String::new(),
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_lasts_for_an_hour_and_ends_at_drain() {
    let mut server = Running::start(&Decisions::open(), "").await;
    let mut client = Http2Client::connect(&server).await;
    let mut readers = [Reader::http1(&server).await, Reader::Http2(client.stream().await)];
    assert_eq!(server.metric("trypema_streams"), 2.0);
    for number in 1..=60 {
        server.numbers.send(number).unwrap();
        for reader in &mut readers {
            let line = timeout(PATIENCE, reader.line()).await.expect("a part");
            assert_eq!(line, format!("{number}\n"));
        }
        server.wait_for_readers();
        // An hour in all, and then an hour without any part.
        server.advance(AN_HOUR / 60).await;
    }
    server.advance(AN_HOUR).await;
    server.numbers.send(61).unwrap();
    for reader in &mut readers {
        assert_eq!(timeout(PATIENCE, reader.line()).await.expect("a part"), "61\n");
    }
    assert_eq!((server.metric("trypema_streams"), server.closed_early("timed_out")), (2.0, 0.0));
    let watch = Stopwatch::start();
    server.stop();
    for reader in &mut readers {
        assert_eq!(timeout(PATIENCE, reader.line()).await.expect("the end"), "");
    }
    server.served.await.unwrap().unwrap();
    assert!(watch.elapsed() < DEADLINE, "{:?}", watch.elapsed());
}

/// A stream has no timeout, but a client that reads nothing of it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_nobody_reads_ends_at_the_request_timeout() {
    let server = Running::start(&Decisions::open(), "").await;
    let mut stream = TcpStream::connect(server.http1_stream).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    server.wait("the stream", || server.metric("trypema_streams") == 1.0);
    let (mut number, mut held, mut unchanged) = (LONG, 0.0, 0);
    // Until the system's buffers are full, which take some megabytes, and the server sends no further part.
    while unchanged < 20 {
        for _ in 0..100 {
            number += 1;
            server.numbers.send(number).unwrap();
            tokio::task::yield_now().await;
        }
        // A busy machine may not have run the server yet.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = server.metric("trypema_buffered_bytes");
        unchanged = if now > 0.0 && now == held { unchanged + 1 } else { 0 };
        held = now;
    }
    assert!(server.metric("trypema_buffered_bytes") <= 512.0 * 1024.0, "unread parts are bounded");
    server.advance(REQUEST_TIMEOUT).await;
    server.wait("the stream to end", || server.metric("trypema_streams") == 0.0);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    server.wait_for_silence();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_peer_has_a_quarter_of_the_streams() {
    let settings = "max_connections: 20\ntrusted_proxies: [192.0.2.1]\n";
    let server = Running::start(&Decisions::open(), settings).await;
    let mut client = Http2Client::connect(&server).await;
    let _streams = [client.stream().await, client.stream().await];
    let (response, _) = client.begin("/stream", "", true).await.unwrap();
    assert_eq!(response.await.unwrap_err().reason(), Some(h2::Reason::REFUSED_STREAM));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_leave_connections_for_others() {
    let server = Running::start(&Decisions::open(), "max_connections: 20\n").await;
    let mut client = Http2Client::connect(&server).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(client.stream().await);
    }
    let (response, _) = client.begin("/stream", "", true).await.unwrap();
    let refused = response.await.unwrap_err();
    assert_eq!(refused.reason(), Some(h2::Reason::REFUSED_STREAM));
    let mut http1 = TcpStream::connect(server.http1_stream).await.unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    http1.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("too many streams"), "{answer}");
    // The other requests of the connection are not affected, and an ended stream makes room.
    assert!(client.ask("x").await.is_some());
    drop(streams.pop());
    server.wait("room", || server.metric("trypema_streams") == 4.0);
    streams.push(client.stream().await);
    server.numbers.send(7).unwrap();
    let parts = join_all(streams.iter_mut().map(RecvStream::data)).await;
    assert!(parts.into_iter().all(|part| part.is_some_and(|part| part.is_ok_and(|part| part == "7\n"))));
}
