//! Many clients compete for a few slots of a real server, and half of them go away midway.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trypema::RateLimiter;
use trypema::rules::{Engine, Request};
use trypema::tower::RateLimitLayer;

use crate::tower::scene::rule_set;
use crate::tower::served::Served;

const RULES: &str = "rules: [{id: slots, scope: global, strategy: {concurrency: {limit: 20, hold: 60s}}}]";
const SLOTS: usize = 20;
const CLIENTS: usize = 64;
const ROUNDS: usize = 4;
const CHUNKS: usize = 5;

/// Counts the handlers that run, from their first line to the end of their stream.
#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Running(Arc<InFlight>);

impl Running {
    fn start(in_flight: &Arc<InFlight>) -> Self {
        let now = in_flight.now.fetch_add(1, Ordering::SeqCst) + 1;
        in_flight.most.fetch_max(now, Ordering::SeqCst);
        Self(in_flight.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A stream of chunks that takes its time.
struct Slow {
    left: usize,
    pause: std::pin::Pin<Box<tokio::time::Sleep>>,
    _running: Running,
}

impl http_body::Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::ready!(self.pause.as_mut().poll(cx));
        if self.left == 0 {
            return std::task::Poll::Ready(None);
        }
        self.left -= 1;
        let next = tokio::time::Instant::now() + Duration::from_millis(1);
        self.pause.as_mut().reset(next);
        std::task::Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"chunk\n")))))
    }
}

async fn work(in_flight: Arc<InFlight>) -> Body {
    let _running = Running::start(&in_flight);
    tokio::time::sleep(Duration::from_millis(1)).await;
    Body::new(Slow { left: CHUNKS, pause: Box::pin(tokio::time::sleep(Duration::from_millis(1))), _running })
}

/// Sends a request and reads up to `bytes` of the response; then closes the connection.
async fn call(address: std::net::SocketAddr, bytes: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    (&mut stream).take(bytes as u64).read_to_end(&mut response).await.unwrap();
    response
}

async fn compete(engine: Engine) {
    let (engine, in_flight) = (Arc::new(engine), Arc::new(InFlight::default()));
    let layer = RateLimitLayer::rules(engine.clone()).reserve(Duration::from_secs(60));
    let layer = layer.wait(Duration::from_secs(60)).build().unwrap();
    let shared = in_flight.clone();
    let router = Router::new().route("/", get(move || work(shared.clone()))).layer(layer);
    let served = Served::start(router).await;
    let address = served.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    if client % 2 == 0 {
                        let response = String::from_utf8(call(address, usize::MAX >> 1).await).unwrap();
                        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                        assert_eq!(response.matches("chunk\n").count(), CHUNKS, "{response}");
                        continue;
                    }
                    // Without reading anything, after a part of the head, or within the body.
                    let bytes = [0, 10, 160][(client / 2 + round) % 3];
                    let patience = Duration::from_millis((client * 7 + round * 13) as u64 % 40);
                    let _ = tokio::time::timeout(patience, call(address, bytes)).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let left = async {
        loop {
            let explained = engine.explain(&Request::new(&[])).await.unwrap();
            let left = explained.applying().next().unwrap().left;
            if left == SLOTS as u64 && in_flight.now.load(Ordering::SeqCst) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::FAR_TOO_LONG, left).await.expect("all slots are free at the end");
    assert_eq!(engine.holders("slots").await.unwrap().unwrap(), []);
    let most = in_flight.most.load(Ordering::SeqCst);
    assert!((SLOTS / 2..=SLOTS).contains(&most), "{most} in flight");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_slots_are_never_exceeded_in_process() {
    compete(Engine::local(Arc::new(RateLimiter::builder().build().unwrap()), rule_set(RULES))).await;
}

#[cfg(feature = "redis-tokio")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_slots_are_never_exceeded_in_redis() {
    let server = trypema_testkit::redis::Server::start().unwrap();
    let connection = trypema_testkit::blocking::dial(&server.url()).await;
    let limiter = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
    compete(Engine::redis(Arc::new(limiter.build().unwrap()), rule_set(RULES))).await;
}
