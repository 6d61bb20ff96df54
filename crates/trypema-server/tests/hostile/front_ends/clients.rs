//! Clients of the front ends. The hostile tests are written for any of them.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::server::{PATIENCE, Running};

/// A connection that sends several requests at once.
pub(super) trait Client: Sized + Send {
    /// Bytes of a new connection that begin a request, without the rest of its head.
    const PART_OF_HEAD: &'static [u8];

    fn address(server: &Running) -> SocketAddr;

    fn connect(server: &Running) -> impl Future<Output = Self> + Send;

    /// Sends a request at once. The result is its answer, or `None` if the server has refused it or has closed the connection.
    fn send(&mut self, text: &str) -> impl Future<Output = oneshot::Receiver<Option<String>>> + Send;

    fn ask(&mut self, text: &str) -> impl Future<Output = Option<String>> + Send {
        async move {
            let answer = self.send(text).await;
            timeout(PATIENCE, answer).await.expect("an answer in time").unwrap_or_default()
        }
    }

    /// Waits until the server has had time to read what other connections have sent.
    fn witness(&mut self) -> impl Future<Output = ()> + Send {
        async move {
            for _ in 0..20 {
                assert!(self.ask("witness").await.is_some());
            }
        }
    }

    /// Sends many requests at once, and returns the number of answers.
    fn ask_many(&mut self, count: usize) -> impl Future<Output = usize> + Send {
        async move {
            let mut answers = Vec::new();
            for number in 0..count {
                answers.push(self.send(&format!("number {number}")).await);
            }
            let answers = timeout(PATIENCE, join_all(answers)).await.expect("answers in time");
            answers.into_iter().filter(|answer| matches!(answer, Ok(Some(_)))).count()
        }
    }
}

/// Waits until the server closes the connection, and discards what it sends before.
pub(super) async fn is_closed(mut stream: TcpStream) {
    let mut piece = [0; 4096];
    let closed = async { while stream.read(&mut piece).await.is_ok_and(|count| count > 0) {} };
    timeout(PATIENCE, closed).await.expect("the connection to be closed");
}

/// Whether the server has closed the connection, which it has sent nothing on.
pub(super) fn is_open(stream: &TcpStream) -> bool {
    !matches!(stream.try_read(&mut [0]), Ok(0))
}

/// Requests without an answer.
type Waiting = VecDeque<oneshot::Sender<Option<String>>>;

/// A client of the line protocol.
pub(super) struct LineClient {
    writer: OwnedWriteHalf,
    /// `None` once the connection is closed.
    waiting: Arc<Mutex<Option<Waiting>>>,
}

impl LineClient {
    pub(super) async fn connect_to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (reader, writer) = stream.into_split();
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        let (first, mut lines) = (Arc::clone(&waiting), BufReader::new(reader).lines());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let waiting = first.lock().unwrap().as_mut().and_then(VecDeque::pop_front);
                let waiting = waiting.expect("a request for this answer");
                let _ = waiting.send((line != "busy").then_some(line));
            }
            *first.lock().unwrap() = None;
        });
        Self { writer, waiting }
    }
}

impl Client for LineClient {
    const PART_OF_HEAD: &'static [u8] = b"check user=an";

    fn address(server: &Running) -> SocketAddr {
        server.lines
    }

    async fn connect(server: &Running) -> Self {
        Self::connect_to(server.lines).await
    }

    async fn send(&mut self, text: &str) -> oneshot::Receiver<Option<String>> {
        let (sender, receiver) = oneshot::channel();
        if let Some(waiting) = self.waiting.lock().unwrap().as_mut() {
            waiting.push_back(sender);
        }
        // If this fails, the reader ends, too.
        let _ = self.writer.write_all(format!("{text}\n").as_bytes()).await;
        receiver
    }
}

/// The windows of a client: a connection has room for many streams that are not read.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// A client of HTTP/2.
#[derive(Clone)]
pub(super) struct Http2Client(SendRequest<Bytes>);

impl Client for Http2Client {
    const PART_OF_HEAD: &'static [u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04";

    fn address(server: &Running) -> SocketAddr {
        server.http2
    }

    async fn connect(server: &Running) -> Self {
        Self::connect_from(Ipv4Addr::LOCALHOST, server).await
    }

    async fn send(&mut self, text: &str) -> oneshot::Receiver<Option<String>> {
        let (sender, receiver) = oneshot::channel();
        let begun = self.begin("/", text, true).await;
        tokio::spawn(async move {
            let answer = async { read_text(begun?.0.await.ok()?.into_body()).await };
            let _ = sender.send(answer.await);
        });
        receiver
    }
}

impl Http2Client {
    /// Connects from another address of this machine, and so as another peer.
    pub(super) async fn connect_from(source: Ipv4Addr, server: &Running) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((source, 0))).unwrap();
        let stream = socket.connect(server.http2).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (client, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    /// Sends a request, and returns its response and the rest of its body. Waits while the server permits no further stream.
    pub(super) async fn begin(
        &mut self,
        path: &str,
        text: &str,
        is_complete: bool,
    ) -> Option<(h2::client::ResponseFuture, SendStream<Bytes>)> {
        let mut ready = timeout(PATIENCE, self.0.clone().ready()).await.expect("room for a stream").ok()?;
        let request = Request::post(format!("http://test{path}")).body(()).unwrap();
        let (response, mut body) = ready.send_request(request, false).ok()?;
        // If this fails, the server has refused the stream.
        let _ = body.send_data(Bytes::from(text.to_owned()), is_complete);
        Some((response, body))
    }

    /// Opens a stream of the server's numbers.
    pub(super) async fn stream(&mut self) -> RecvStream {
        let (response, _) = self.begin("/stream", "", true).await.unwrap();
        timeout(PATIENCE, response).await.expect("a response").unwrap().into_body()
    }
}

/// Reads a body to its end.
pub(super) async fn read_text(mut body: RecvStream) -> Option<String> {
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        let _ = body.flow_control().release_capacity(data.len());
        text.extend_from_slice(&data);
    }
    String::from_utf8(text).ok()
}
