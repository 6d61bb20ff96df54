//! A plain or encrypted byte stream that records the progress of its connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::registry::ConnectionSlot;

/// The underlying stream: TCP, with or without TLS.
#[derive(Debug)]
pub(crate) enum MaybeTlsStream {
    Plain(TcpStream),
    /// Boxed: it is large, and most connections are plain.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream that tells the registry when the first byte arrives, and when everything in the buffers of the front end is written.
#[derive(Debug)]
pub struct Stream {
    pub(super) inner: MaybeTlsStream,
    pub(super) slot: Arc<ConnectionSlot>,
}

impl Stream {
    /// Returns the place of the connection in the registry.
    pub fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    /// Records progress if at least one byte was written.
    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.slot.record_progress();
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
        let read = match &mut self.inner {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        if buffer.filled().len() > before {
            self.slot.begin_first_head();
            self.slot.record_progress();
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        };
        self.record_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        };
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.inner, MaybeTlsStream::Plain(_))
    }

    /// Front ends call this after they have written everything, so the responses are sent once the flush succeeds.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = match &mut self.inner {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        if flushed.is_ready() {
            self.slot.end_answers();
            self.slot.release_responses();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
