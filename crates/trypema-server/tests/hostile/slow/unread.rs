//! Clients that send requests all the time and never read a response.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use trypema_testkit::redis::wait_until;

use super::crowd::good_client;
use crate::harness::Service;
use crate::process::{descriptors, is_sound, memory};
use crate::timing::Stopwatch;

const CLIENTS: usize = 20;
/// A short request with a long response.
const QUESTION: &str = "GET /openapi.json HTTP/1.1\r\nhost: test\r\n\r\n";
/// The maximum memory per connection: pipelined requests up to the size of a head, and the responses to some
/// of them.
const MEMORY_PER_CLIENT: u64 = 512 * 1024;
/// Buffers and arenas of the first requests.
const MEMORY_SLACK: u64 = 8 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn unread_answers_are_bounded_and_end() {
    let service =
        Service::start(&["--idle-timeout", "2s", "--header-timeout", "2s", "--request-timeout", "2s"]);
    good_client(service.address, &mut service.client(), 100);
    wait_until("the good client to be gone", || service.metric("trypema_connections") <= 1.0).unwrap();
    let (memory_before, descriptors_before) = (memory(&service), descriptors(&service));
    // The admin listener, because this response is large.
    let address = service.admin_address();
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || never_read(address))).collect();
    let mut most = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        most = most.max(memory(&service));
        assert_eq!(service.get("/healthz").status, 200);
    }
    let sent: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    println!("{CLIENTS} clients sent {sent} bytes and read none; memory {memory_before}, at most {most}");
    assert!(
        most <= memory_before + MEMORY_SLACK + CLIENTS as u64 * MEMORY_PER_CLIENT,
        "{memory_before} -> {most}"
    );
    wait_until("all descriptors to come back", || descriptors(&service) <= descriptors_before).unwrap();
    is_sound(&service);
}

/// Sends requests until the server closes the connection, and returns the number of bytes sent.
fn never_read(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let questions = QUESTION.repeat(1_000);
    let watch = Stopwatch::start();
    let mut sent = 0;
    loop {
        // The write may end anywhere in a request. The next one continues there.
        match stream.write(&questions.as_bytes()[sent % QUESTION.len()..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return sent,
        }
        assert!(watch.elapsed() < PATIENCE, "{sent} bytes were sent, and it is still not ended");
    }
}
