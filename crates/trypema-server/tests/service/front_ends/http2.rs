//! HTTP/2 that decides the body of each request, and answers `/stream` with a part for each number that is sent.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use h2::Reason;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::watch;
use trypema_server::testkit::{
    Delivery, NotBegun, OpenStream, Protocol, ReservedMemory, Serving, Stream, UNACCOUNTED_BYTES, Work,
};

use super::{Decide, stream_of};

const MAX_BODY: usize = 1024 * 1024;
/// The window of a stream and of a connection: a connection has no more bytes of bodies that nobody has asked for.
const WINDOW: u32 = 64 * 1024;
/// The requests of a connection that its client waits for.
const MAX_STREAMS: u32 = 32;

pub struct Http2 {
    pub decide: Decide,
    pub numbers: watch::Receiver<u64>,
}

impl Protocol for Http2 {
    fn serve(self: Arc<Self>, stream: Stream) -> Serving {
        Box::pin(async move {
            let slot = Arc::clone(stream.slot());
            let requests = Arc::clone(&slot);
            let service = service_fn(move |request| {
                let (http2, begun) = (Arc::clone(&self), requests.begin_request());
                async move { http2.answer(request, begun.map_err(refused)?).await }
            });
            let connection = pin!(
                http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(WINDOW)
                    .initial_connection_window_size(WINDOW)
                    .max_concurrent_streams(MAX_STREAMS)
                    .serve_connection(TokioIo::new(stream), service)
            );
            slot.drive(connection, |connection| connection.graceful_shutdown()).await;
        })
    }
}

/// The stream was not processed, so the client may repeat the request.
fn refused(_: NotBegun) -> h2::Error {
    Reason::REFUSED_STREAM.into()
}

fn out_of_memory() -> h2::Error {
    Reason::ENHANCE_YOUR_CALM.into()
}

impl Http2 {
    async fn answer(
        &self,
        request: Request<Incoming>,
        work: Work,
    ) -> Result<Response<UnsyncBoxBody<Bytes, h2::Error>>, h2::Error> {
        if request.uri().path() == "/stream" {
            let open = work.into_stream(Delivery::Window).map_err(|_| Reason::REFUSED_STREAM)?;
            let parts = stream_of(self.numbers.clone());
            return Ok(Response::new(StreamBody { open, parts }.boxed_unsync()));
        }
        let (text, _reserved) = read(request.into_body(), &work).await?;
        let decide = Arc::clone(&self.decide);
        // A task of its own, so that it goes on if the client resets the stream.
        let decided = tokio::spawn(async move {
            work.begin_decision().map_err(refused)?;
            let answer = decide(text, &work).await;
            work.end_decision();
            Ok::<_, h2::Error>((work, answer))
        });
        let (work, answer) = decided.await.map_err(|_| Reason::INTERNAL_ERROR)??;
        let reserved = reserve(&work, answer.len()).await?;
        let answer = Full::new(work.into_unread(answer.into(), reserved));
        Ok(Response::new(answer.map_err(|never| match never {}).boxed_unsync()))
    }
}

async fn reserve(work: &Work, bytes: usize) -> Result<Option<ReservedMemory>, h2::Error> {
    if bytes <= UNACCOUNTED_BYTES {
        return Ok(None);
    }
    work.reserve(bytes).await.map(Some).ok_or_else(out_of_memory)
}

/// Reads a body, whose memory is reserved in advance.
async fn read(body: Incoming, work: &Work) -> Result<(String, Option<ReservedMemory>), h2::Error> {
    let length = body.size_hint().exact().map_or(MAX_BODY, |length| length as usize);
    let reserved = reserve(work, length).await?;
    let body = http_body_util::Limited::new(body, MAX_BODY).collect().await.map_err(|_| Reason::CANCEL)?;
    Ok((String::from_utf8_lossy(&body.to_bytes()).into_owned(), reserved))
}

struct StreamBody {
    open: OpenStream,
    parts: BoxStream<'static, Bytes>,
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.open.poll_ending(context).is_ready() {
            return Poll::Ready(None);
        }
        self.parts.poll_next_unpin(context).map(|part| {
            let part = self.open.part(part?);
            Some(part.map(Frame::data).ok_or_else(out_of_memory))
        })
    }
}
