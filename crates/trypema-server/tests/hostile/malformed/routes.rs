//! Malformed requests to the other routes: forward-auth, explain, keys, reservations, and query strings.

use trypema_testkit::random::Random;

use super::input::{Expected, GOOD_BODY, Input, mutated};
use super::{TOKEN, bodies};

const QUERIES: [&str; 12] = [
    "deny_status=200",
    "deny_status=429&headers=standard",
    "headers=x-ratelimit",
    "deny_status=42",
    "deny_status=99999999999999999999",
    "deny_status",
    "headers=loud",
    "%",
    "%zz=%zz",
    "%ff=%fe",
    "&&&&&&",
    "cost=-1",
];
const NAMES: [&str; 12] = [
    "",
    "all",
    "nothing",
    "all%7C",
    "all%7Cuser=ann",
    "%00",
    "%ff",
    "%",
    "%7C%7C%7C",
    "../../etc/passwd",
    "all%0d%0aset-cookie:%20a",
    "*",
];
/// Paths after `/v1/forward-auth`. Three of them are profiles.
const PROFILES: [&str; 9] =
    ["", "/default", "/nginx", "/", "/default&cost=0", "/default?cost=0", "/%64efault", "/cost=0", "/nobody"];
const FORWARDED: [(&str, &[u8]); 14] = [
    ("x-forwarded-for", b"not an address"),
    ("x-forwarded-for", b"1.2.3.4, , ,,, 5.6.7.8"),
    ("x-forwarded-for", b"999.999.999.999"),
    ("x-forwarded-for", b"[::1]:99999999"),
    ("x-forwarded-for", b"\xff\xfe\xfd"),
    ("x-forwarded-for", b""),
    ("x-forwarded-uri", b"not a path"),
    ("x-forwarded-uri", b"/%zz/%ff?%00"),
    ("x-forwarded-uri", b"http://[::1"),
    ("x-forwarded-uri", b"\x80\x81"),
    ("x-forwarded-method", b"GET POST"),
    ("x-forwarded-method", b"\xc3\x28"),
    ("x-forwarded-host", b"::::"),
    ("authorization", b"Bearer \xff"),
];

pub(super) fn any(random: &mut Random) -> Input {
    match random.below(8) {
        0 | 1 => forward_auth(random),
        2 => query(random),
        3 => explain(random),
        4 | 5 => reservation(random),
        _ => key(random),
    }
}

/// The client is on the loopback network, so the server trusts its forwarded headers.
fn forward_auth(random: &mut Random) -> Input {
    let path = random.pick(&PROFILES);
    let mut bytes = format!("GET /v1/forward-auth{path} HTTP/1.1\r\nhost: test\r\n").into_bytes();
    for _ in 0..random.between(1, 6) {
        let (name, value) = random.pick(&FORWARDED);
        let value =
            if random.once_in(3) && !value.is_empty() { mutated(random, value) } else { value.to_vec() };
        // Line ends and NUL would make this an input of another kind.
        let value: Vec<u8> = value.into_iter().filter(|byte| !b"\r\n\0".contains(byte)).collect();
        bytes.extend_from_slice(&[name.as_bytes(), b": ", &value, b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"\r\n");
    Input::new("forward-auth", Expected::ForwardAuth, bytes)
}

fn query(random: &mut Random) -> Input {
    let (length, query) = (GOOD_BODY.len(), random.pick(&QUERIES));
    let request = format!(
        "POST /v1/check?{query} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{GOOD_BODY}"
    );
    Input::new("query", Expected::Anything, request)
}

/// Explaining spends nothing, whatever the body is.
fn explain(random: &mut Random) -> Input {
    let checking = bodies::any(random);
    let body = checking.body();
    let head = format!(
        "POST /v1/explain HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Input::new("explain", Expected::SpendsNothing, [head.as_bytes(), body].concat())
}

fn key(random: &mut Random) -> Input {
    let name = if random.once_in(20) { "a".repeat(20_000) } else { random.pick(&NAMES).to_owned() };
    let method = random.pick(&["GET", "PUT", "POST", "OPTIONS"]);
    let request =
        format!("{method} /v1/keys/{name} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    Input::new("key", Expected::SpendsNothing, request)
}

/// Texts that somebody made up. None of them may settle, release or renew anything, or count units.
fn reservation(random: &mut Random) -> Input {
    let verb = random.pick(&["settle", "release", "renew"]);
    let more = match (verb, random.below(3)) {
        ("settle", 0) => r#","costs":{"requests":9}"#,
        ("settle", _) => r#","costs":{"requests":0}"#,
        ("renew", 0) => r#","ttl":"1h""#,
        _ => "",
    };
    let body = format!(r#"{{"reservation":"{}"{more}}}"#, text(random));
    let body = if random.once_in(4) { mutated(random, body.as_bytes()) } else { body.into_bytes() };
    let head = format!("POST /v1/{verb} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
    Input::new("reservation", Expected::SpendsNothing, [head.as_bytes(), &body].concat())
}

/// Returns a text with a random id: of a real counter, of many counters, or of none.
fn text(random: &mut Random) -> String {
    let mut bytes: Vec<u8> = (0..16).map(|_| random.next_u64() as u8).collect();
    let counters = match random.below(6) {
        0 => 0,
        1 if random.once_in(10) => 40_000,
        1 => 400,
        _ => 1,
    };
    for _ in 0..counters {
        bytes.extend_from_slice(&[3, 0]);
        bytes.extend_from_slice(b"all");
    }
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        1 => bytes = mutated(random, &bytes),
        2 => bytes.fill(0),
        _ => {}
    }
    format!("{}{}", random.pick(&["r1.", "r1.", "r1.", "r2.", ""]), base64_url(&bytes))
}

fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        (0..=chunk.len()).map(move |at| char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize]))
    });
    digits.collect()
}
