//! Requests that are malformed before the body, or in its length.

use trypema_testkit::random::Random;

use super::input::{Expected, GOOD_BODY, Input, mutated};

const REQUEST_LINES: [&[u8]; 18] = [
    b"\0",
    b"GET",
    b"GET /healthz",
    b"GET /healthz HTTP/9.9",
    b"GET /healthz HTTP/1.12",
    b"GET /healthz http/1.1",
    b"GET  /healthz HTTP/1.1",
    b"GET\t/healthz HTTP/1.1",
    b"GET /health\0z HTTP/1.1",
    b"GET /health z HTTP/1.1",
    b"GET \xff\xfe HTTP/1.1",
    b"G\xcbT /healthz HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb",
    b"BREW /v1/check HTTP/1.1",
    b"TRACE /v1/check HTTP/1.1",
    b"CONNECT 127.0.0.1:22 HTTP/1.1",
];
const HEADER_LINES: [&[u8]; 14] = [
    b"no colon",
    b": no name",
    b"name : a space before the colon",
    b" folded: from nothing",
    b"na\0me: x",
    b"na\xffme: x",
    b"name: va\0lue",
    b"name: va\x01lue",
    b"name: va\rlue",
    b"content-length: -1",
    b"content-length: 99999999999999999999999",
    b"content-length: 5e3",
    b"transfer-encoding: gzip",
    b"transfer-encoding: chunked, gzip",
];
/// Contradicting lengths and framings of a body.
const FRAMINGS: [&str; 10] = [
    "content-length: 5\r\ncontent-length: 6",
    "content-length: 5, 6",
    "content-length: +5",
    "content-length: 0x5",
    "content-length:",
    "content-length: 18446744073709551615",
    "content-length: 9223372036854775808",
    "transfer-encoding: xchunked",
    "transfer-encoding: chunked\r\ntransfer-encoding: identity",
    "transfer-encoding: \x0bchunked",
];
const CHUNKS: [&str; 12] = [
    "zz\r\n{}\r\n0\r\n\r\n",
    "-1\r\n{}\r\n0\r\n\r\n",
    "\r\n{}\r\n0\r\n\r\n",
    "0x2\r\n{}\r\n0\r\n\r\n",
    "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "ffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "9\r\n{}\r\n0\r\n\r\n",
    "1\r\n{}\r\n0\r\n\r\n",
    "2\r\n{}0\r\n\r\n",
    "2\r\n{}\r\n",
    "2 2\r\n{}\r\n0\r\n\r\n",
    "2;\0\r\n{}\r\n0\r\n\r\n",
];
const SECOND: &str = "DELETE /v1/keys/all HTTP/1.1\r\nhost: test\r\n\r\n";

pub(super) fn any(random: &mut Random) -> Input {
    match random.below(20) {
        0..4 => mutated_head(random),
        4..6 => {
            // At least the last byte of the body is missing, so nothing may be counted.
            let end = random.below(good().len() as u64) as usize;
            Input::new("truncated request", Expected::Refusal, &good().as_bytes()[..end])
        }
        6..8 => request_line(random),
        8..10 => header_line(random),
        10..12 => framing(random),
        12..14 => Input::new("lying chunks", Expected::Refusal, chunked(random.pick(&CHUNKS))),
        14..16 => smuggling(random),
        16..18 => garbage_after(random),
        18 => expecting(random),
        _ if random.once_in(20) => huge(random),
        _ => method(random),
    }
}

fn good() -> String {
    check_with(&format!("content-length: {}", GOOD_BODY.len()), GOOD_BODY)
}

/// Mutates the head and keeps the body, so that the units that it may spend are known.
fn mutated_head(random: &mut Random) -> Input {
    let good = good();
    let (head, body) = good.as_bytes().split_at(good.len() - GOOD_BODY.len());
    Input::new("mutated head", Expected::Anything, [&mutated(random, head), body].concat())
}

fn check_with(header: &str, body: &str) -> String {
    format!("POST /v1/check HTTP/1.1\r\nhost: test\r\n{header}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    check_with("transfer-encoding: chunked", body)
}

fn request_line(random: &mut Random) -> Input {
    let line = random.pick(&REQUEST_LINES);
    Input::new("request line", Expected::Refusal, [line, b"\r\nhost: test\r\n\r\n"].concat())
}

fn header_line(random: &mut Random) -> Input {
    let line = random.pick(&HEADER_LINES);
    let bytes =
        [b"POST /v1/check HTTP/1.1\r\n", line, b"\r\nhost: test\r\n\r\n", GOOD_BODY.as_bytes()].concat();
    Input::new("header line", Expected::Refusal, bytes)
}

fn framing(random: &mut Random) -> Input {
    Input::new("framing", Expected::Refusal, check_with(random.pick(&FRAMINGS), GOOD_BODY))
}

/// Returns a request with two contradicting body lengths. Under one of them, a second request is hidden in
/// the body.
fn smuggling(random: &mut Random) -> Input {
    let (length, coding) = ("content-length: 6", "transfer-encoding: chunked");
    let header = match random.below(3) {
        0 => format!("{length}\r\n{coding}"),
        1 => format!("{coding}\r\n{length}"),
        _ => format!("{length}\r\ntransfer-encoding: identity\r\n{coding}"),
    };
    let hidden = check_with(&header, &format!("0\r\n\r\n{SECOND}"));
    Input::new("smuggling", Expected::OneAnswer, hidden)
}

fn garbage_after(random: &mut Random) -> Input {
    let garbage: Vec<u8> = match random.below(3) {
        0 => b"garbage\r\n\r\n".to_vec(),
        1 => (0..random.between(1, 200)).map(|_| random.between(0x80, 0xff) as u8).collect(),
        _ => b"GET / HTTP/1.1\r\nbad header\r\n\r\n".to_vec(),
    };
    Input::new("garbage after a request", Expected::GoodThenGarbage, [good().as_bytes(), &garbage].concat())
}

fn expecting(random: &mut Random) -> Input {
    let large = 2 * 1024 * 1024;
    let header = match random.below(3) {
        0 => format!("expect: 100-continue\r\ncontent-length: {large}"),
        1 => "expect: 100-continue\r\ncontent-length: 10".to_owned(),
        _ => "expect: the unexpected\r\ncontent-length: 10".to_owned(),
    };
    Input::new("expect", Expected::Refusal, check_with(&header, "{"))
}

fn method(random: &mut Random) -> Input {
    let length = if random.once_in(10) { 10_000 } else { random.between(1, 40) };
    let name: String = (0..length).map(|_| char::from(random.between(0x41, 0x5a) as u8)).collect();
    Input::new("method", Expected::Refusal, format!("X{name} /v1/check HTTP/1.1\r\nhost: test\r\n\r\n"))
}

/// Returns a request that exceeds a size limit.
fn huge(random: &mut Random) -> Input {
    let hundred_thousand = "a".repeat(100_000);
    let bytes = match random.below(6) {
        0 => format!("GET /{hundred_thousand} HTTP/1.1\r\nhost: test\r\n\r\n"),
        1 => format!("GET /v1/keys/{hundred_thousand}"),
        2 => format!("GET /healthz HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000)),
        3 => format!("GET /healthz HTTP/1.1\r\na: {hundred_thousand}\r\n\r\n"),
        4 => chunked(&format!("{:x}\r\n{hundred_thousand}\r\n", hundred_thousand.len()).repeat(12)),
        _ => chunked(&format!("2;{hundred_thousand}\r\n{{}}\r\n0\r\n\r\n")),
    };
    Input::new("huge", Expected::Refusal, bytes)
}
