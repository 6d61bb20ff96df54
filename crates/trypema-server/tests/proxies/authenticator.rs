//! The authenticator of the samples per user. It verifies JSON Web Tokens (HS256) and returns the claim
//! `sub`.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The secret that the issuer of tokens and the authenticator share.
const SECRET: &[u8] = b"a secret of the test";

/// Starts a small server and returns its address. `GET /verify` returns 200 with `X-User` if the bearer token
/// is valid, 200 without it if the token has no `sub`, and 401 otherwise.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// Returns a signed token with these claims.
pub fn token(claims: &Value) -> String {
    let signed = unsigned(&json!({"alg": "HS256", "typ": "JWT"}), claims);
    let signature = URL_SAFE_NO_PAD.encode(hmac(SECRET, signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Returns a token without a signature: `header.claims`.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

fn serve(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    while let Some(head) = head(&mut stream) {
        assert_eq!(head[0], "GET /verify HTTP/1.1", "neither the client's method nor its query");
        let bearer = head.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            value.strip_prefix("Bearer ").filter(|_| name.eq_ignore_ascii_case("authorization"))
        });
        let answer = match bearer.and_then(verified) {
            Some(claims) => match claims["sub"].as_str() {
                Some(user) => format!("200 OK\r\nX-User: {user}\r\n"),
                None => "200 OK\r\n".to_owned(),
            },
            None => "401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n".to_owned(),
        };
        let answer = format!("HTTP/1.1 {answer}Content-Length: 0\r\n\r\n");
        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads the lines of a request. None of the requests has a body.
fn head(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

/// Returns the claims of a token if its signature is valid.
fn verified(token: &str) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decode = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
    let is_right = URL_SAFE_NO_PAD.decode(signature).ok()? == hmac(SECRET, signed.as_bytes());
    (is_right && decode(header)?["alg"] == "HS256").then(|| decode(claims))?
}

/// HMAC-SHA-256 (RFC 2104).
fn hmac(secret: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| -> Vec<u8> {
        (0..64).map(|index| secret.get(index).copied().unwrap_or_default() ^ byte).collect()
    };
    let inner = Sha256::digest([&pad(0x36), text].concat());
    Sha256::digest([&pad(0x5c)[..], &inner].concat()).to_vec()
}
