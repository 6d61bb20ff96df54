//! Sends spans to the collector.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::Span;
use crate::metrics::Counter;

/// The number of spans in one request to the collector.
const BATCH: usize = 512;
/// The time that the first span of a batch waits for more.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The timeout of one request to the collector.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The error of an endpoint that is not an `http://` address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "need http://HOST:PORT without a query, for example http://127.0.0.1:4318 (https is not supported; use a \
     local collector)"
)]
pub(crate) struct InvalidEndpoint;

/// The address of an OTLP collector.
#[derive(Debug, Clone)]
pub(crate) struct Collector {
    authority: String,
    host_and_port: String,
    path: String,
}

impl Collector {
    /// Parses an endpoint such as `http://127.0.0.1:4318`.
    pub(crate) fn new(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        let uri: Uri = endpoint.parse().map_err(|_| InvalidEndpoint)?;
        let authority = uri.authority().ok_or(InvalidEndpoint)?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() {
            return Err(InvalidEndpoint);
        }
        let port = authority.port_u16().unwrap_or(4318);
        Ok(Self {
            authority: authority.to_string(),
            host_and_port: format!("{}:{port}", authority.host()),
            path: format!("{}/v1/traces", uri.path().trim_end_matches('/')),
        })
    }

    /// Sends queued spans in batches until all senders are dropped and the queue is empty.
    pub(super) async fn send_all(self, mut waiting: mpsc::Receiver<Span>, dropped: Arc<Counter>) {
        let mut was_failing = false;
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(first) = waiting.recv().await {
            batch.push(first);
            fill_batch(&mut waiting, &mut batch).await;
            let sent = tokio::time::timeout(SEND_TIMEOUT, self.send(&batch)).await;
            let failure = match sent {
                Ok(Ok(())) => None,
                Ok(Err(reason)) => Some(reason),
                Err(_) => Some(format!("no response within {} s", SEND_TIMEOUT.as_secs())),
            };
            match (&failure, was_failing) {
                (Some(reason), false) => {
                    tracing::warn!(
                        "spans: cannot send to otlp_endpoint {} ({reason}); dropping spans until it accepts them",
                        self.authority
                    );
                }
                (None, true) => tracing::info!("spans: otlp_endpoint accepts spans again"),
                _ => {}
            }
            was_failing = failure.is_some();
            if was_failing {
                batch.iter().for_each(|_| dropped.add_one());
            }
            batch.clear();
        }
    }

    async fn send(&self, batch: &[Span]) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let stream = TcpStream::connect(&self.host_and_port).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let request = Request::post(&self.path)
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(to_json(batch).to_string())))
            .map_err(|error| failed(&error))?;
        let answer = async {
            let status = sender.send_request(request).await.map_err(|error| failed(&error))?.status();
            if status.is_success() { Ok(()) } else { Err(format!("the collector responded with {status}")) }
        };
        tokio::select! {
            answer = answer => answer,
            ended = connection => Err(ended.map_or_else(|error| error.to_string(), |()| "the connection ended".to_owned())),
        }
    }
}

/// Adds spans to the batch until it is full or [`BATCH_DELAY`] has passed.
async fn fill_batch(waiting: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
    let filling = async {
        while batch.len() < BATCH {
            match waiting.recv().await {
                Some(span) => batch.push(span),
                None => break,
            }
        }
    };
    // A timeout is the usual end.
    let _ = tokio::time::timeout(BATCH_DELAY, filling).await;
}

/// Encodes spans as an OTLP request body.
fn to_json(batch: &[Span]) -> Value {
    let spans: Vec<Value> = batch.iter().map(span_to_json).collect();
    let service = json!({"key": "service.name", "value": {"stringValue": "trypema"}});
    json!({"resourceSpans": [{
        "resource": {"attributes": [service]},
        "scopeSpans": [{"scope": {"name": "trypema", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

fn span_to_json(span: &Span) -> Value {
    const SERVER: u8 = 2;
    const ERROR: u8 = 2;
    let mut written = json!({
        "traceId": span.parent.trace,
        "spanId": format!("{:016x}", span.id),
        "parentSpanId": span.parent.span,
        "name": span.route,
        "kind": SERVER,
        "startTimeUnixNano": span.started.as_nanos().to_string(),
        "endTimeUnixNano": span.ended.as_nanos().to_string(),
        "attributes": [
            {"key": "http.route", "value": {"stringValue": span.route}},
            {"key": "http.response.status_code", "value": {"intValue": span.status.to_string()}},
        ],
    });
    if span.status >= 500 {
        written["status"] = json!({"code": ERROR});
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        let collector = Collector::new("http://otel:4318/").unwrap();
        assert_eq!((collector.host_and_port.as_str(), collector.path.as_str()), ("otel:4318", "/v1/traces"));
        assert_eq!(Collector::new("http://otel/base").unwrap().path, "/base/v1/traces");
        for other in ["", "otel:4318", "https://otel", "http://otel?x=y", "http://"] {
            assert!(Collector::new(other).is_err(), "{other}");
        }
    }
}
