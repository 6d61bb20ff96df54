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
use super::{Api, RouteListener};
use crate::net::{Instruction, Protocol, Stream};
use crate::service::Access;

/// HTTP/1.1 with the routes of one listener.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) api: Arc<Api>,
    pub(crate) listener: RouteListener,
    pub(crate) access: Access,
}

impl Protocol for Http {
    async fn serve(self: Arc<Self>, stream: Stream) {
        let slot = Arc::clone(&stream.slot);
        let service = {
            let (http, slot) = (Arc::clone(&self), Arc::clone(&slot));
            service_fn(move |request| {
                let (http, slot) = (Arc::clone(&http), Arc::clone(&slot));
                async move { Ok::<_, Infallible>(http.serve_request(request, &slot).await) }
            })
        };
        let mut instruction = slot.connection.instruction();
        let mut connection = pin!(
            http1::Builder::new()
                // The first is exact. The second bounds the buffer, which may hold more than the head.
                .max_header_size(self.api.max_header)
                .max_buf_size(self.api.max_header)
                .header_read_timeout(None)
                // A client may close its sending half after the last request, and still gets the response.
                .half_close(true)
                // If `graceful_shutdown` came before the first read, hyper would not read at all. Disabling
                // keep-alive has it serve one request.
                .keep_alive(instruction == Instruction::Continue)
                .serve_connection(TokioIo::new(TrackedStream::new(stream)), service)
        );
        let result = loop {
            if instruction == Instruction::Close {
                return;
            }
            tokio::select! {
                biased;
                result = connection.as_mut() => break result,
                next = slot.connection.next_instruction() => instruction = next,
            }
            if instruction == Instruction::Finish {
                connection.as_mut().graceful_shutdown();
            }
        };
        if let Err(error) = result {
            if error.is_parse() {
                self.api.app().metrics.connections.malformed.add_one();
            }
            tracing::debug!("net: connection closed early ({error})");
        }
    }
}
