//! HTTP/1.1 on one connection, with hyper.

mod head_tracker;
mod tracked_stream;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use self::tracked_stream::TrackedStream;
use super::problem::ApiError;
use super::{Api, serve_request};
use crate::net::{Instruction, Protocol, Serving, Stream};

/// HTTP/1.1 with the routes of an API.
#[derive(Debug)]
pub(crate) struct Http<A>(pub(crate) A);

impl<A: Api> Protocol for Http<A> {
    fn serve(self: Arc<Self>, stream: Stream) -> Serving {
        Box::pin(serve(self, stream))
    }
}

async fn serve<A: Api>(http: Arc<Http<A>>, stream: Stream) {
    let slot = Arc::clone(stream.slot());
    let common = http.0.common();
    let service = {
        let (http, slot) = (Arc::clone(&http), Arc::clone(&slot));
        service_fn(move |request| {
            let (http, slot) = (Arc::clone(&http), Arc::clone(&slot));
            async move {
                Ok::<_, Infallible>(match slot.begin_request() {
                    Ok(work) => serve_request(&http.0, request, work).await,
                    Err(not_begun) => ApiError::from(not_begun).into_response(),
                })
            }
        })
    };
    let connection = pin!(
        http1::Builder::new()
            // The first is exact. The second bounds the buffer, which may hold more than the head.
            .max_header_size(common.max_header)
            .max_buf_size(common.max_header)
            .header_read_timeout(None)
            // A client may close its sending half after the last request, and still gets the response.
            .half_close(true)
            // If `graceful_shutdown` came before the first read, hyper would not read at all. Disabling
            // keep-alive has it serve one request.
            .keep_alive(slot.instruction() == Instruction::Continue)
            .serve_connection(TokioIo::new(TrackedStream::new(stream)), service)
    );
    if let Some(Err(error)) = slot.drive(connection, |connection| connection.graceful_shutdown()).await {
        if error.is_parse() {
            common.app.metrics.connections.malformed.add_one();
        }
        tracing::debug!("net: connection closed early ({error})");
    }
}
