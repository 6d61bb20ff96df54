//! A mock of a language model with the API of OpenAI. It answers with numbers, one token at a time.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::{StatusCode, header};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Returns a model that needs `pace` for each token. It answers with half of `max_tokens`.
pub(crate) fn model(pace: Duration) -> Router {
    Router::new().route("/v1/chat/completions", post(move |json| complete(json, pace)))
}

async fn complete(Json(request): Json<Value>, pace: Duration) -> Response {
    if request["model"] == "broken" {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let prompt = request["messages"].to_string().len() as u64 / 5;
    let answer = request["max_tokens"].as_u64().unwrap_or(100) / 2;
    let usage =
        json!({"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer});
    if request["stream"] == true {
        let (events, receiver) = mpsc::channel(1);
        tokio::spawn(generate(answer, pace, usage, events));
        let headers = [(header::CONTENT_TYPE, "text/event-stream")];
        return (headers, Body::new(Events(receiver))).into_response();
    }
    let text: Vec<String> = (1..=answer).map(|number| number.to_string()).collect();
    Json(json!({"choices": [{"message": {"content": text.join(" ")}}], "usage": usage})).into_response()
}

/// Sends the events of an answer. Ends early if nobody reads them any more.
async fn generate(answer: u64, pace: Duration, usage: Value, events: mpsc::Sender<String>) {
    for number in 1..=answer {
        tokio::time::sleep(pace).await;
        let token = json!({"choices": [{"delta": {"content": format!("{number} ")}}]});
        if events.send(format!("data: {token}\n\n")).await.is_err() {
            return;
        }
    }
    let last = json!({"choices": [], "usage": usage});
    let _ = events.send(format!("data: {last}\n\ndata: [DONE]\n\n")).await;
}

struct Events(mpsc::Receiver<String>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(Bytes::from(event)))))
    }
}
