//! A server that does nothing: the same attack on it shows how much of a delay is the machine's.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use crate::Failure;

/// Bytes that it reads from a connection: as much as the largest body.
const MAX_READ: usize = 1024 * 1024;

/// Accepts connections, reads a little and never answers, until the process is ended.
pub(crate) fn run() -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(swallow(stream));
        }
    })
}

async fn swallow(stream: TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    let mut total = 0;
    while total < MAX_READ && stream.readable().await.is_ok() {
        match stream.try_read(&mut buffer) {
            Ok(read @ 1..) => total += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
    // Held until the attackers are gone.
    std::future::pending::<()>().await;
}
