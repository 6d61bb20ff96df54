//! `max_header_bytes` is exact: a head of that size is served, and one with a byte more is refused, however it arrives.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::client::Client;
use crate::harness::Service;
use crate::process::is_sound;

/// The smallest allowed value, the default, and one that is no power of two.
const LIMITS: [usize; 3] = [8 * 1024, 32 * 1024, 50_001];
/// A request before the head, in the same write.
const FIRST: &str = "POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 31\r\n\r\n{\"attributes\": {\"user\": \"ann\"}}";

/// The part of a head that makes it long.
#[derive(Debug, Clone, Copy)]
enum Long {
    Target,
    Value,
    /// Spaces before a value, which are no part of it.
    Padding,
    /// As many header lines as are allowed.
    Lines,
}

/// The way in which a head arrives.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    AtOnce,
    /// The last byte comes by itself.
    LastByteLate,
    /// After another request, in the same write.
    Pipelined,
}

impl Long {
    /// Returns a head of exactly `size` bytes, which the server answers with 200.
    fn head(self, size: usize) -> String {
        let with =
            |target: &str, lines: &str| format!("GET /healthz{target} HTTP/1.1\r\nhost: test\r\n{lines}\r\n");
        let fill = |rest: &str| "a".repeat(size - rest.len());
        let head = match self {
            Self::Target => with(&format!("?{}", fill(&with("?", ""))), ""),
            Self::Value => with("", &format!("x: {}\r\n", fill(&with("", "x: \r\n")))),
            Self::Padding => with("", &format!("x:{}y\r\n", " ".repeat(size - with("", "x:y\r\n").len()))),
            Self::Lines => {
                let lines = "x: y\r\n".repeat(98);
                let last = fill(&with("", &format!("{lines}x: \r\n")));
                with("", &format!("{lines}x: {last}\r\n"))
            }
        };
        assert_eq!(head.len(), size);
        head
    }
}

impl Arrival {
    /// Sends a head and returns the status of its response.
    fn send(self, address: SocketAddr, head: &str) -> u16 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        match self {
            Self::AtOnce => stream.write_all(head.as_bytes()).unwrap(),
            Self::LastByteLate => {
                let (start, end) = head.split_at(head.len() - 1);
                stream.write_all(start.as_bytes()).unwrap();
                // The server may have refused the head already.
                let _ = stream.write_all(end.as_bytes());
            }
            Self::Pipelined => stream.write_all(format!("{FIRST}{head}").as_bytes()).unwrap(),
        }
        let mut client = Client::from(stream);
        if matches!(self, Self::Pipelined) {
            assert_eq!(client.read().unwrap().status, 200);
        }
        client.read().unwrap_or_else(|| panic!("{self:?}: no response")).status
    }
}

#[test]
fn heads_are_served_up_to_the_limit_and_refused_beyond_it() {
    for limit in LIMITS {
        let service = Service::start(&["--max-header-bytes", &limit.to_string()]);
        for long in [Long::Target, Long::Value, Long::Padding, Long::Lines] {
            for arrival in [Arrival::AtOnce, Arrival::LastByteLate, Arrival::Pipelined] {
                for (size, status) in [(limit, 200), (limit + 1, 431), (limit + limit / 2, 431)] {
                    let given = arrival.send(service.address, &long.head(size));
                    assert_eq!(given, status, "{long:?} {arrival:?}: {size} bytes of {limit}");
                }
            }
        }
        is_sound(&service);
    }
}

/// Bodies do not count: neither one that comes with the head, nor one that is larger than any head.
#[test]
fn bodies_are_no_part_of_a_head() {
    let service = Service::start(&["--max-header-bytes", "8192"]);
    let body = format!(r#"{{"attributes": {{"user": "ann"}}{}}}"#, " ".repeat(20_000));
    let mut client = service.client();
    for _ in 0..3 {
        assert_eq!(client.send("POST", "/v1/check", &[], &body).status, 200);
    }
    let head = "POST /v1/check HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes()).unwrap();
    assert_eq!(client.read().unwrap().status, 200);
}
