//! A server that does nothing. The same attack on it shows the part of a delay that the machine causes.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use crate::Failure;

/// The number of bytes that the sink reads from a connection: as many as the largest body has.
const MAX_READ: usize = 1024 * 1024;

/// Accepts connections, reads up to [`MAX_READ`] and never answers, until the process is killed.
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
    // Hold the connection open until the process ends.
    std::future::pending::<()>().await;
}
