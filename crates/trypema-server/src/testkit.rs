//! What the tests of this repository need to add front ends of their own. Nothing here is promised.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream as Parts;
use http::{Request, Response};
use hyper::body::Incoming;

use crate::app::App;
use crate::attributes::{OwnedRequest, OwnedSet};
use crate::front::http::{Api, HttpResponse, Responder, ResponseBody, serve};
use crate::mode::Mode;
pub use crate::net::{
    Delivery, Instruction, MAX_DECISIONS, NotBegun, OpenStream, Protocol, Registry, Reservation, Serving,
    Stream, UNACCOUNTED_BYTES, Work,
};
use crate::server::Server;
use crate::service::{Caller, Check, Service};
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

    async fn respond(&self, _: Request<Incoming>, work: Work) -> HttpResponse {
        self.api.account_for(Response::new(ResponseBody::stream((self.stream)())), work).await
    }
}

impl Protocol for StreamResponder {
    fn serve(self: Arc<Self>, stream: Stream) -> Serving {
        Box::pin(serve(self, stream))
    }
}

/// A check in words, as in `check user=ann endpoint=/x cost=2`, by the rules of a server.
#[derive(Debug, Clone)]
pub struct Checks(Service);

impl Checks {
    /// Returns the answer in words. `traceparent` begins a span.
    pub async fn answer(&self, line: &str, work: &Work) -> String {
        let mut words = line.split(' ');
        let mode = match words.next() {
            Some("check") => Mode::Check,
            Some("peek") => Mode::Peek,
            Some("record") => Mode::Record,
            other => return format!("error no such mode: {}", other.unwrap_or_default()),
        };
        let (mut set, mut traceparent) = (OwnedSet::default(), None);
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            let read = match name {
                "cost" => value.parse().map(|cost| set.requests = Some(cost)).map_err(|_| "cost"),
                "traceparent" => Ok(traceparent = Some(value)),
                _ => set.attributes.add(name, value).map_err(|refusal| refusal.code()),
            };
            if let Err(problem) = read {
                return format!("error {problem}");
            }
        }
        let arrival = self.0.arrived(traceparent);
        let request = OwnedRequest::from(set);
        let verdict = self.0.call(&Caller::proxy(), work, Check { mode, request: &request }).await;
        self.0.answered(arrival, "check", if verdict.is_ok() { 200 } else { 500 });
        match verdict {
            Ok(verdict) if verdict.is_allowed() => "allowed".to_owned(),
            Ok(verdict) => format!("denied {:?}", verdict.retry_after()),
            Err(refusal) => format!("error {}", refusal.code()),
        }
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
        self.listeners.add(|api| protocol(Checks(api.service().clone())))
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
