//! Hostile clients, each kind from its own address, until their process is killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::Failure;

/// The number of connections that one address tries to hold: more than the 1,000 that it may have.
const CONNECTIONS: usize = 1_200;
/// The number of connections that all attackers may open, so that every attack ends.
const MAX_OPENED: usize = 1_000_000;
/// The time after which an attack ends by itself.
const LONGEST: Duration = Duration::from_secs(60);
/// The size of a socket's receive buffer. A slow reader reads nothing, so this is all that the server can
/// send.
const RECEIVE_BUFFER: u32 = 16 * 1024;
/// The size of the largest accepted body of a check.
const BODY: usize = 1024 * 1024;
/// The interval between two bytes of a trickled head.
const TRICKLE: Duration = Duration::from_millis(50);
/// The delay before a closed connection is opened again: a very short round trip.
const RECONNECT: Duration = Duration::from_millis(1);

/// An attack on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Requests long responses, and reads none.
    SlowReaders,
    /// Sends all but the last byte of the largest body.
    LargeBodies,
    /// Sends a request head byte by byte.
    TrickledHeads,
    /// All of the above, each from another address.
    Everything,
}

impl Attack {
    pub(crate) const ALL: [Self; 4] =
        [Self::SlowReaders, Self::LargeBodies, Self::TrickledHeads, Self::Everything];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SlowReaders => "slow readers",
            Self::LargeBodies => "large bodies",
            Self::TrickledHeads => "trickled heads",
            Self::Everything => "everything at once",
        }
    }
}

/// The number of connections that all attackers have opened.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Attacks until the process is killed.
pub(crate) fn run(name: &str, address: &str) -> Result<(), Failure> {
    let attack = Attack::ALL.into_iter().find(|attack| attack.name() == name).ok_or("no such attack")?;
    let address: SocketAddr = address.parse()?;
    let attacks = match attack {
        Attack::Everything => &Attack::ALL[..3],
        _ => &[attack][..],
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for (attack, last) in attacks.iter().zip(2..) {
            for _ in 0..CONNECTIONS {
                tokio::spawn(repeat(*attack, Ipv4Addr::new(127, 0, 0, last), address));
            }
        }
        sleep(LONGEST).await;
    });
    Ok(())
}

/// Repeats an attack, with a new connection whenever the last one is closed.
async fn repeat(attack: Attack, source: Ipv4Addr, address: SocketAddr) {
    while OPENED.fetch_add(1, Ordering::Relaxed) < MAX_OPENED {
        if let Ok(stream) = connect(source, address).await {
            // However the connection ended, open the next one.
            let _ = act(attack, &stream).await;
        }
        sleep(RECONNECT).await;
    }
}

async fn connect(source: Ipv4Addr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(address).await
}

async fn act(attack: Attack, stream: &TcpStream) -> std::io::Result<()> {
    match attack {
        Attack::SlowReaders => {
            let check = r#"{"attributes":{"user":"eve"}}"#;
            let body = format!("[{}]", [check; 1_000].join(","));
            let request = format!(
                "POST /v1/check HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            loop {
                send(stream, request.as_bytes()).await?;
            }
        }
        Attack::LargeBodies => {
            let head = format!("POST /v1/check HTTP/1.1\r\nhost: soak\r\ncontent-length: {BODY}\r\n\r\n");
            send(stream, head.as_bytes()).await?;
            send(stream, &vec![b' '; BODY - 1]).await?;
            stream.ready(Interest::READABLE).await.map(drop)
        }
        _ => {
            let head = b"GET /healthz HTTP/1.1\r\nx-slow: ".iter().chain(std::iter::repeat(&b'a'));
            for byte in head {
                send(stream, &[*byte]).await?;
                // A readable socket means that the server has closed the connection.
                if timeout(TRICKLE, stream.readable()).await.is_ok() {
                    break;
                }
            }
            Ok(())
        }
    }
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
