//! Many sockets at once, and a good client among them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::client::Client;
use crate::timing::{Stopwatch, p99, time};

/// The size of the receive buffer of a slow reader.
const RECEIVE_BUFFER: u32 = 16 * 1024;
/// Descriptors of the test itself.
const OTHERS: u64 = 1_000;

/// Raises the limit of open files and returns `wanted`, or the number of sockets that fit the limit.
pub(super) fn fitting(wanted: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let fitting = wanted.min(usize::try_from(most).unwrap_or(usize::MAX));
    if fitting < wanted {
        println!("only {fitting} of {wanted} sockets: the limit of open files is lower");
    }
    fitting
}

/// Opens `count` connections and sends nothing.
pub(super) fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// Connects from a local address with a small receive buffer, so that unread responses stay in the server.
pub(super) fn connect_from(source: Ipv4Addr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.bind(SocketAddr::from((source, 0)))?;
        socket.connect(address).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    Ok(stream)
}

/// Opens silent connections at 4,000 per second: faster than real clients. At a higher rate, a pause of a
/// busy machine would make the good client look idle for longer than all of them.
pub(super) fn pour(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let watch = Stopwatch::start();
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let due = (watch.elapsed().as_millis() as usize * 4).min(count);
        all.extend(connect(address, due.saturating_sub(all.len()).min(100)));
        thread::sleep(Duration::from_millis(5));
    }
    all
}

/// Whether the server has closed the connection. Bytes received before do not matter.
pub(super) fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Sends requests as a good client does, alternately on a kept connection and on a new one, and returns the
/// p99 of the response times.
pub(super) fn good_client(address: SocketAddr, kept: &mut Client, requests: usize) -> Duration {
    let mut times: Vec<Duration> = (0..requests)
        .flat_map(|_| {
            let kept = time(|| ask(kept, "the connection that stays"));
            [kept, time(|| ask(&mut Client::connect(address), "a new connection"))]
        })
        .collect();
    p99(&mut times)
}

fn ask(client: &mut Client, which: &str) {
    let body = r#"{"attributes":{"other":"x"}}"#;
    let length = body.len();
    let request = format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}");
    // If the write fails, there is no response either.
    let _ = client.write(request.as_bytes());
    let reply = client.read().unwrap_or_else(|| panic!("{which} was closed"));
    assert_eq!(reply.status, 200, "{reply:?}");
}
