//! HTTP/1.1 on one connection, with hyper.

mod head_tracker;
mod tracked_stream;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use http::Request;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use self::tracked_stream::TrackedStream;
use super::problem::ApiError;
use super::{Api, HttpResponse, RouteListener};
use crate::net::{Instruction, Protocol, Serving, Stream, Work};
use crate::refusal::Refusal;
use crate::service::Access;

/// HTTP/1.1 with the routes of one listener.
#[derive(Debug)]
pub(crate) struct Http {
    pub(super) api: Arc<Api>,
    pub(super) listener: RouteListener,
    pub(super) access: Access,
}

impl Http {
    pub(crate) fn new(api: &Arc<Api>, listener: RouteListener, access: Access) -> Self {
        Self { api: Arc::clone(api), listener, access }
    }
}

/// Answers the requests of a connection.
pub(crate) trait Responder: Send + Sync + 'static {
    fn api(&self) -> &Api;

    fn respond(&self, request: Request<Incoming>, work: Work) -> impl Future<Output = HttpResponse> + Send;
}

impl Protocol for Http {
    fn serve(self: Arc<Self>, stream: Stream) -> Serving {
        Box::pin(serve(self, stream))
    }
}

/// Serves a connection until its client or the registry closes it.
pub(crate) async fn serve<R: Responder>(responder: Arc<R>, stream: Stream) {
    let slot = Arc::clone(stream.slot());
    let service = {
        let (responder, slot) = (Arc::clone(&responder), Arc::clone(&slot));
        service_fn(move |request| {
            let (responder, slot) = (Arc::clone(&responder), Arc::clone(&slot));
            async move {
                let mut response = match slot.begin_request() {
                    Ok(work) => responder.respond(request, work).await,
                    Err(not_begun) => ApiError::from(Refusal::from(not_begun)).into_response(),
                };
                // The client learns that it must not send another request. hyper closes the connection then.
                if responder.api().app().is_draining() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        })
    };
    let (api, is_last) = (responder.api(), slot.instruction() == Instruction::Finish);
    let connection = pin!(
        http1::Builder::new()
            // The first is exact. The second bounds the buffer, which may hold more than the head.
            .max_header_size(api.max_header)
            .max_buf_size(api.max_header)
            .header_read_timeout(None)
            // A client may close its sending half after the last request, and still gets the response.
            .half_close(true)
            // If `graceful_shutdown` came before the first read, hyper would not read at all. Disabling
            // keep-alive has it serve one request.
            .keep_alive(!is_last)
            .serve_connection(TokioIo::new(TrackedStream::new(stream)), service)
    );
    if let Some(Err(error)) = slot
        .drive(connection, |connection| {
            if !is_last {
                connection.graceful_shutdown()
            }
        })
        .await
    {
        if error.is_parse() {
            api.app().metrics.connections.malformed.add_one();
        }
        tracing::debug!("net: connection closed early ({error})");
    }
}
