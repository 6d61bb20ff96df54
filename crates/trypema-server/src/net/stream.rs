//! A plain or encrypted byte stream that records the progress of its connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

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

/// Follows what a client sends, for a protocol whose requests may come with a part of the next one.
pub(crate) trait Heads: fmt::Debug + Send {
    /// Follows the bytes of a read.
    fn read(&mut self, bytes: &[u8]);

    /// Whether the last bytes were a part of a head whose rest has not arrived.
    fn is_mid_head(&self) -> bool;
}

/// A stream that tells the registry when the first byte arrives, and when everything in the buffers of the front end is written.
#[derive(Debug)]
pub struct Stream {
    inner: MaybeTlsStream,
    slot: Arc<ConnectionSlot>,
    heads: Option<Box<dyn Heads>>,
}

trait ReadWrite: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ReadWrite for S {}

impl Stream {
    pub(super) fn new(inner: MaybeTlsStream, slot: Arc<ConnectionSlot>) -> Self {
        Self { inner, slot, heads: None }
    }

    /// Bounds the time for a head whose start came with the previous request: the connection begins a head after a read that
    /// brought a part of one, and after a response if a part of the next one has arrived already.
    #[must_use]
    pub(crate) fn following(self, heads: impl Heads + 'static) -> Self {
        Self { heads: Some(Box::new(heads)), ..self }
    }

    /// Returns the place of the connection in the registry.
    pub fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    fn inner(&mut self) -> Pin<&mut dyn ReadWrite> {
        match &mut self.inner {
            MaybeTlsStream::Plain(stream) => Pin::new(stream),
            MaybeTlsStream::Tls(stream) => Pin::new(stream),
        }
    }

    fn begin_followed_head(&self) {
        if self.heads.as_ref().is_some_and(|heads| heads.is_mid_head()) {
            self.slot.begin_head();
        }
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
        let read = self.inner().poll_read(cx, buffer);
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        if !bytes.is_empty() {
            self.slot.begin_first_head();
            self.slot.record_progress();
        }
        if let Some(heads) = &mut self.heads {
            heads.read(bytes);
        }
        if read.is_ready() {
            self.begin_followed_head();
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.inner().poll_write(cx, bytes);
        self.record_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.inner().poll_write_vectored(cx, slices);
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.inner, MaybeTlsStream::Plain(_))
    }

    /// Front ends call this after they have written everything, so the responses are sent once the flush succeeds.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.inner().poll_flush(cx);
        if flushed.is_ready() {
            self.slot.end_answers();
            self.slot.release_responses();
            self.begin_followed_head();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}
