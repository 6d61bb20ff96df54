//! Support for front ends that only tests have. Not covered by semantic versioning.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream as Parts;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;

use crate::app::App;
use crate::front::http::{Api, ApiError, HttpResponse, Responder, StreamBody, account_for, serve};
pub use crate::net::{
    Delivery, Instruction, MAX_DECISIONS, NotBegun, OpenStream, Protocol, Registry, ReservedMemory, Serving,
    Stream, UNACCOUNTED_BYTES, Work,
};
use crate::refusal::Refusal;
use crate::server::Server;
use crate::service::json::{CheckRequest, read};
use crate::service::report::CheckResponse;
use crate::service::{Caller, Service};
use crate::start_error::StartError;

/// Returns the parts of a stream that begins now.
pub type NewStream = Arc<dyn Fn() -> Pin<Box<dyn Parts<Item = Bytes> + Send>> + Send + Sync>;

/// Answers every request over HTTP/1.1 with a stream.
struct StreamResponder {
    api: Arc<Api>,
    stream: NewStream,
}

impl Responder for StreamResponder {
    fn api(&self) -> &Api {
        &self.api
    }

    async fn respond(&self, _: Request<Incoming>, work: Result<Work, NotBegun>) -> HttpResponse {
        let stream = Response::new(Either::Right(Box::new(StreamBody::new((self.stream)()))));
        match work {
            Ok(work) => account_for(stream, work).await,
            Err(_) => stream,
        }
    }
}

impl Protocol for StreamResponder {
    fn serve(self: Arc<Self>, stream: Stream) -> Serving {
        Box::pin(serve(self, stream))
    }
}

/// Checks for front ends of tests.
#[derive(Debug, Clone)]
pub struct Checks(Service);

impl Checks {
    /// Answers a line: a `traceparent` or `-`, and a request in JSON, as in `- {"attributes": {"user": "ann"}}`. The answer
    /// is in JSON, too.
    pub async fn answer(&self, line: &str, work: &Work) -> String {
        let (traceparent, body) = line.split_once(' ').unwrap_or(("-", line));
        let arrival = self.0.arrived(Some(traceparent));
        let answer = self.check(body.as_bytes(), work).await;
        self.0.answered(arrival, "check", if answer.is_ok() { 200 } else { 500 });
        answer.unwrap_or_else(|refusal| ApiError::from(refusal).to_json())
    }

    async fn check(&self, body: &[u8], work: &Work) -> Result<String, Refusal> {
        let (mode, request) = read::<CheckRequest>(body)?.into_parts()?;
        let verdict = self.0.call(Caller::proxy(), work).check(mode, &request).await?;
        // Serialising text and numbers cannot fail.
        Ok(serde_json::to_string(&CheckResponse::new(&verdict, mode)).unwrap_or_default())
    }
}

impl Server {
    /// Adds a listener for HTTP/1.1 that answers every request with a stream, and returns its address.
    pub fn add_stream_listener(&mut self, stream: NewStream) -> Result<SocketAddr, StartError> {
        self.listeners.add(|api| Arc::new(StreamResponder { api: Arc::clone(api), stream }))
    }

    /// Adds a listener with a protocol of its own, on a free port, and returns its address.
    pub fn add_listener(&mut self, protocol: Arc<dyn Protocol>) -> Result<SocketAddr, StartError> {
        self.listeners.add(|_| protocol)
    }

    /// Adds a listener with a protocol that asks the server's rules, and returns its address.
    pub fn add_checking_listener(
        &mut self,
        protocol: impl FnOnce(Checks) -> Arc<dyn Protocol> + Send + Sync + 'static,
    ) -> Result<SocketAddr, StartError> {
        self.listeners.add(|api| protocol(Checks(api.service.clone())))
    }

    /// Returns the metrics as text, without a connection for them.
    pub fn metrics(app: &App) -> String {
        app.exposition()
    }

    /// Returns the connections, whose timeouts a test may bring forward.
    pub fn connections(&self) -> &Arc<Registry> {
        &self.registry
    }
}
