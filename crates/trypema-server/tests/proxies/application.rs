//! The protected application, which reports the requests that reach it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

/// A small server on a free port. It answers `/status/403` with that status, closes the connection for
/// `/hang-up`, and answers everything else with 200. Bodies describe the request.
pub struct Application {
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Application {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let application = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let asked = application.asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let asked = asked.clone();
                thread::spawn(move || serve(stream.unwrap(), &asked));
            }
        });
        application
    }

    /// Returns the number of requests that have reached the application.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Answers requests until the proxy closes the connection.
fn serve(stream: TcpStream, asked: &AtomicUsize) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        asked.fetch_add(1, Ordering::SeqCst);
        let target = request["target"].as_str().unwrap();
        if target == "/hang-up" {
            return;
        }
        let status = target.strip_prefix("/status/").unwrap_or("200");
        let body = request.to_string();
        let head =
            format!("HTTP/1.1 {status} Any\r\nX-Application: yes\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all((head + &body).as_bytes()).unwrap();
    }
}

/// Reads a request, or returns `None` if the connection ends.
pub fn read(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let first = line(stream)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let (mut length, mut is_chunked) = (0, false);
    let mut headers = serde_json::Map::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "content-length" => length = value.parse().unwrap(),
            "transfer-encoding" => is_chunked = value == "chunked",
            _ => {}
        }
        // Two headers of one name are joined to one list.
        let value = match headers.get(&name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.to_owned(),
        };
        headers.insert(name, value.into());
    }
    let body = if is_chunked { chunks(stream)? } else { exactly(stream, length)? };
    Some(json!({"method": method, "target": target, "headers": headers, "body": body}))
}

fn chunks(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut body = String::new();
    loop {
        let length = usize::from_str_radix(&line(stream)?, 16).unwrap();
        body += &exactly(stream, length)?;
        line(stream)?;
        if length == 0 {
            return Some(body);
        }
    }
}

fn exactly(stream: &mut BufReader<TcpStream>, length: usize) -> Option<String> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let length = stream.read_line(&mut line).ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}
