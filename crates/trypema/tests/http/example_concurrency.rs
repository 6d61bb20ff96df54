//! The example `concurrency`, served and called by real clients, with patience on a driven clock.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

#[path = "../../examples/concurrency/app.rs"]
mod app;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trypema::RateLimiter;
use trypema::clock::{Clock, ManualClock};
use trypema::rules::{Engine, Request};

use crate::tower::served::Served;

struct Api {
    served: Served,
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
}

impl Api {
    async fn start() -> Self {
        let clock = Arc::new(ManualClock::default());
        let engine = app::engine(RateLimiter::builder().clock(clock.clone()).build().unwrap()).unwrap();
        let served = Served::start(app::app(engine.clone()).unwrap()).await;
        Self { served, engine, clock }
    }

    /// Begins an upload, of which the end is missing.
    async fn upload(&self, user: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.served.address).await.unwrap();
        let head = format!(
            "POST /upload HTTP/1.1\r\nhost: x\r\nx-user: {user}\r\nconnection: close\r\n\
             transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// Waits until a user has so many free slots, and so many are free in all.
    async fn assert_left(&self, user: &str, expected: [u64; 2]) {
        let attributes = [("user", user), ("endpoint", "/upload"), ("method", "POST")];
        until(async || {
            let explained = self.engine.explain(&Request::new(&attributes)).await.unwrap();
            let left = |id: &str| explained.applying().find(|rule| rule.decision.rule.id == id).unwrap().left;
            [left("uploads-per-user"), left("uploads")] == expected
        })
        .await;
    }

    /// Waits until a request is in the queue: it tries again after a second.
    async fn assert_waiting(&self) {
        let soon = self.clock.now() + Duration::from_secs(1);
        until(async || self.clock.next_wake().is_some_and(|next| next <= soon)).await;
    }
}

async fn until(is_true: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
}

/// Sends the end of an upload, and returns the response.
async fn finish(mut upload: TcpStream) -> String {
    upload.write_all(b"0\r\n\r\n").await.unwrap();
    response(upload).await
}

async fn response(mut upload: TcpStream) -> String {
    let mut response = String::new();
    upload.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn a_third_upload_waits_for_the_first_to_end() {
    let api = Api::start().await;
    let first = api.upload("ann").await;
    api.assert_left("ann", [1, 7]).await;
    let second = api.upload("ann").await;
    api.assert_left("ann", [0, 6]).await;
    let third = api.upload("ann").await;
    api.assert_waiting().await;
    let bob = finish(api.upload("bob").await).await;
    assert!(bob.starts_with("HTTP/1.1 200") && bob.ends_with("stored 5 bytes\n"), "{bob}");

    assert!(finish(first).await.ends_with("stored 5 bytes\n"));
    assert!(finish(third).await.ends_with("stored 5 bytes\n"));
    assert!(finish(second).await.ends_with("stored 5 bytes\n"));
    api.assert_left("ann", [2, 8]).await;
}

#[tokio::test]
async fn patience_ends_and_clients_go_away() {
    let api = Api::start().await;
    let uploads = [api.upload("ann").await, api.upload("ann").await];
    api.assert_left("ann", [0, 6]).await;
    let third = api.upload("ann").await;
    api.assert_waiting().await;
    api.clock.advance(app::PATIENCE);
    let denied = response(third).await;
    assert!(denied.starts_with("HTTP/1.1 429") && denied.contains("uploads-per-user"), "{denied}");
    drop(uploads);
    api.assert_left("ann", [2, 8]).await;
}

#[tokio::test]
async fn a_request_without_a_user_is_denied() {
    let api = Api::start().await;
    let denied = api.served.send("POST", "/upload", &[], "x").await;
    assert_eq!(denied.status(), 429);
}
