//! A plain or encrypted byte stream that records the progress of its connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::connection::Phase;
use super::registry::Place;

/// The underlying stream.
#[derive(Debug)]
pub(crate) enum Bytes {
    Plain(TcpStream),
    /// Boxed: it is large, and most connections are plain.
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// A stream that moves its connection to [`Phase::Head`] when a request begins to arrive, and to
/// [`Phase::Idle`] when the response is sent.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) bytes: Bytes,
    pub(crate) place: Arc<Place>,
}

impl Stream {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.place.note_progress();
        }
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        if buffer.filled().len() > before {
            if matches!(self.place.connection.state().phase(), Phase::New | Phase::Idle) {
                self.place.enter(Phase::Head);
            }
            self.place.note_progress();
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
        };
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        };
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.bytes, Bytes::Plain(_))
    }

    /// hyper calls this after it has written everything, so the responses are sent once the flush succeeds.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        };
        if flushed.is_ready() {
            self.place.release_answers();
            if self.place.connection.state().phase() == Phase::Answer {
                self.place.enter(Phase::Idle);
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Bytes::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
