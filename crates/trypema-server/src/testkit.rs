//! What the tests of this repository need to add front ends of their own. Nothing here is promised.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream as Parts;
use http::{Request, Response};
use hyper::body::Incoming;

use crate::app::App;
use crate::front::http::{Api, Common, Http, ResponseBody, RouteResult};
use crate::metrics::RouteLabel;
pub use crate::net::{
    Delivery, Instruction, MAX_DECISIONS, NotBegun, OpenStream, Protocol, Registry, Reservation, Serving,
    Stream, UNACCOUNTED_BYTES, Work,
};
use crate::server::Server;
use crate::start_error::StartError;

/// Returns the parts of a stream that begins now.
pub type NewStream = Arc<dyn Fn() -> Pin<Box<dyn Parts<Item = Bytes> + Send>> + Send + Sync>;

/// An API over HTTP/1.1 that answers every request with a stream.
struct StreamApi {
    common: Common,
    stream: NewStream,
}

/// The only route.
#[derive(Clone, Copy)]
pub(crate) struct AnyPath;

impl From<AnyPath> for RouteLabel {
    fn from(_: AnyPath) -> Self {
        Self::Unknown
    }
}

impl Api for StreamApi {
    type Route = AnyPath;

    fn common(&self) -> &Common {
        &self.common
    }

    fn route_of(_: &str) -> AnyPath {
        AnyPath
    }

    fn is_open_to_pages(_: AnyPath) -> bool {
        false
    }

    async fn handle(&self, _: AnyPath, _: Request<Incoming>, _: &Work) -> RouteResult {
        Ok(Response::new(ResponseBody::stream((self.stream)())))
    }
}

impl Server {
    /// Adds a listener for HTTP/1.1 that answers every request with a stream, and returns its address.
    pub fn add_stream_listener(&mut self, stream: NewStream) -> Result<SocketAddr, StartError> {
        self.listeners.add(|common| Arc::new(Http(StreamApi { common: common.clone(), stream })))
    }

    /// Adds a listener with a protocol of its own, on a free port, and returns its address.
    pub fn add_listener(&mut self, protocol: Arc<dyn Protocol>) -> Result<SocketAddr, StartError> {
        self.listeners.add(|_| protocol)
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
