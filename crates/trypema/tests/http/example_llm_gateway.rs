//! The example `llm_gateway`, served and called by real clients.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

#[path = "../../examples/llm_gateway/app.rs"]
mod app;
#[path = "../../examples/llm_gateway/metered.rs"]
mod metered;
#[path = "../../examples/llm_gateway/model.rs"]
mod model;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, Request};

use crate::tower::served::Served;

const PATH: &str = "/v1/chat/completions";
const BUDGET: u64 = 500;
const HEADERS: [(&str, &str); 2] = [("x-api-key", "ann"), ("content-type", "application/json")];

struct Api {
    served: Served,
    engine: Arc<Engine>,
}

fn prompt(model: &str, max_tokens: u64, stream: bool) -> String {
    let messages = json!([{"role": "user", "content": "Count."}]);
    json!({"model": model, "messages": messages, "max_tokens": max_tokens, "stream": stream}).to_string()
}

impl Api {
    async fn start(pace: Duration) -> Self {
        let limiter = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
        let engine = app::engine(limiter).unwrap();
        let served = Served::start(app::app(engine.clone(), model::model(pace)).unwrap()).await;
        Self { served, engine }
    }

    /// The tokens that are spent or reserved, and the requests in flight.
    async fn used(&self) -> [u64; 2] {
        let costs = [("tokens", 0)];
        let request = Request::new(&[("user", "ann")]).with_costs(&costs);
        let explained = self.engine.explain(&request).await.unwrap();
        let left = |id: &str| explained.applying().find(|rule| rule.decision.rule.id == id).unwrap().left;
        [BUDGET - left("tokens"), 2 - left("in-flight")]
    }

    /// The tokens that were spent, once nothing is in flight.
    async fn spent(&self) -> u64 {
        for _ in 0..10_000 {
            if let [spent, 0] = self.used().await {
                return spent;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("still in flight: {:?}", self.used().await)
    }

    async fn complete(&self, body: String) -> http::Response<String> {
        self.served.send("POST", PATH, &HEADERS, body).await
    }
}

#[tokio::test]
async fn a_completion_costs_what_the_model_reports() {
    let api = Api::start(Duration::ZERO).await;
    let answer = api.complete(prompt("mock", 200, false)).await;
    assert_eq!(answer.status(), 200);
    let json: Value = serde_json::from_str(answer.body()).unwrap();
    let total = json["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(api.spent().await, total);

    let answer = api.complete(prompt("mock", 100, true)).await;
    let events: Vec<&str> = answer.body().split_terminator("\n\n").collect();
    assert_eq!((events.len(), events.last()), (52, Some(&"data: [DONE]")));
    let last: Value = serde_json::from_str(events[50].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(api.spent().await, total + last["usage"]["total_tokens"].as_u64().unwrap());
}

#[tokio::test]
async fn a_stream_that_is_left_midway_costs_what_was_sent() {
    let api = Api::start(Duration::from_millis(5)).await;
    let mut client = TcpStream::connect(api.served.address).await.unwrap();
    let body = prompt("mock", 480, true);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nx-api-key: ann\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut received = String::new();
    while received.matches("data: ").count() < 3 {
        let mut bytes = [0; 1_024];
        let length = client.read(&mut bytes).await.unwrap();
        received.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    let [reserved, in_flight] = api.used().await;
    assert!((480..=BUDGET).contains(&reserved) && in_flight == 1, "{reserved} {in_flight}");
    drop(client);
    let spent = api.spent().await;
    assert!((12..240).contains(&spent), "{spent}: the prompt, and the tokens until the server noticed");
}

#[tokio::test]
async fn what_may_not_fit_is_denied_before_the_model_is_called() {
    let api = Api::start(Duration::ZERO).await;
    let denied = api.complete(prompt("mock", 500, false)).await;
    assert_eq!(denied.status(), 429);
    assert!(denied.body().contains("tokens"), "{}", denied.body());
    assert_eq!(api.spent().await, 0);
}

#[tokio::test]
async fn failures_of_the_model_are_free() {
    let api = Api::start(Duration::ZERO).await;
    assert_eq!(api.complete(prompt("broken", 100, false)).await.status(), 500);
    assert_eq!(api.spent().await, 0);
    assert_eq!(api.complete("no json".to_owned()).await.status(), 400);
}
