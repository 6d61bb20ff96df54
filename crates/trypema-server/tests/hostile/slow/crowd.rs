//! Many sockets at once, and a good client among them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::client::Client;
use crate::timing::{Stopwatch, p99, time};

/// As small as a slow reader makes it.
const RECEIVE_BUFFER: u32 = 16 * 1024;
/// Descriptors of the test itself, and of tests beside it in the same process.
const OTHERS: u64 = 1_000;

/// As many sockets as were asked for, or as many as the system's limit leaves room for.
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

/// Opens that many connections and sends nothing.
pub(super) fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// Connects from a local address, with a small receive buffer: what is not read soon stays with the service.
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

/// Opens connections that send nothing, 4,000 a second: faster than any crowd of clients, and slower than the pauses of a busy machine would make a good client
/// look like one that has been idle for longer than all of them.
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

/// Whether the service has closed it. Bytes that it sent before count for nothing.
pub(super) fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Asks as a good client does, in turn on a connection that stays and on a new one; how long all but one in a hundred take.
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
    // If it cannot be written, there is no answer either.
    let _ = client.write(request.as_bytes());
    let reply = client.read().unwrap_or_else(|| panic!("{which} was closed"));
    assert_eq!(reply.status, 200, "{reply:?}");
}
