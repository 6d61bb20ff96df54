//! Invalid bodies in correctly framed requests.

use trypema_testkit::random::Random;

use super::input::{GOOD_BODY, Input, mutated};

const WRONG: [&str; 24] = [
    "",
    "null",
    "true",
    "0",
    "\"\"",
    "{}",
    "[[]]",
    "[null]",
    r#"{"attributes":null}"#,
    r#"{"attributes":[]}"#,
    r#"{"attributes":{"user":1}}"#,
    r#"{"attributes":{"user":null}}"#,
    r#"{"attributes":{"user":{"user":"a"}}}"#,
    r#"{"attributes":{"":"a"}}"#,
    r#"{"attributes":{"user":"a","user":"a"}}"#,
    r#"{"attributes":{},"attributes":{}}"#,
    r#"{"attributes":{},"cost":-1}"#,
    r#"{"attributes":{},"cost":1e400}"#,
    r#"{"attributes":{},"cost":"1"}"#,
    r#"{"attributes":{},"cost":18446744073709551616}"#,
    r#"{"attributes":{},"cost":0x10}"#,
    r#"{"attributes":{},"mode":"burn"}"#,
    r#"{"attributes":{"user":"\ud800"}}"#,
    "{\"attributes\":{\"user\":\"\u{0}\"}}",
];
/// One more than the maximum of each.
const TOO_MANY_ATTRIBUTES: u64 = 33;
const TOO_LONG_VALUE: u64 = 8_193;
const TOO_LONG_NAME: u64 = 65;
const TOO_LONG_BATCH: usize = 1_001;
/// One byte more than the server's limit of 1 MiB.
const TOO_LARGE: usize = 1024 * 1024 + 1;

pub(super) fn any(random: &mut Random) -> Input {
    match random.below(20) {
        0..6 => Input::with_body("mutated body", &mutated(random, GOOD_BODY.as_bytes())),
        6..8 => Input::with_body("mutated batch", &mutated(random, batch(3).as_bytes())),
        8..10 => Input::with_body(
            "truncated body",
            &GOOD_BODY.as_bytes()[..random.below(GOOD_BODY.len() as u64) as usize],
        ),
        10..13 => Input::with_body("wrong body", random.pick(&WRONG).as_bytes()),
        13..15 => Input::with_body("nested body", nested(random).as_bytes()),
        15 => Input::with_body("noise", &noise(random)),
        16 => Input::with_body("long values", long(random).as_bytes()),
        17 => Input::with_body(
            "something after it",
            format!("{GOOD_BODY}{}", random.pick(&["x", "{}", "\0", "]"])).as_bytes(),
        ),
        18 if random.once_in(20) => Input::with_body("long batch", batch(TOO_LONG_BATCH).as_bytes()),
        19 if random.once_in(50) => Input::with_body("large body", " ".repeat(TOO_LARGE).as_bytes()),
        _ => Input::with_body("strange numbers", numbers(random).as_bytes()),
    }
}

fn batch(requests: usize) -> String {
    format!("[{}]", vec![r#"{"attributes":{"user":"ann"}}"#; requests].join(","))
}

fn nested(random: &mut Random) -> String {
    let depth = if random.once_in(50) { 100_000 } else { random.between(2, 2_000) } as usize;
    match random.below(4) {
        0 => "[".repeat(depth),
        1 => r#"{"attributes":"#.repeat(depth),
        2 => format!(r#"{{"attributes":{{"user":{}1{}}}}}"#, "[".repeat(depth), "]".repeat(depth)),
        _ => {
            format!(r#"{{"other":{}{{}}{},"attributes":{{}}}}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth))
        }
    }
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.between(1, 300)).map(|_| random.next_u64() as u8).collect()
}

fn long(random: &mut Random) -> String {
    match random.below(3) {
        0 => {
            let attributes: Vec<String> = (0..random.between(TOO_MANY_ATTRIBUTES, 100))
                .map(|index| format!(r#""a{index}":"b""#))
                .collect();
            format!(r#"{{"attributes":{{{}}}}}"#, attributes.join(","))
        }
        1 => {
            let value = "v".repeat(random.between(TOO_LONG_VALUE, 20_000) as usize);
            format!(r#"{{"attributes":{{"user":"{value}"}}}}"#)
        }
        _ => {
            let name = "n".repeat(random.between(TOO_LONG_NAME, 20_000) as usize);
            format!(r#"{{"attributes":{{"{name}":"ann"}}}}"#)
        }
    }
}

/// Returns a request with a cost of many digits. A cost that fits is valid, and may be denied.
fn numbers(random: &mut Random) -> String {
    let digits: String =
        (0..random.between(1, 30)).map(|_| char::from(random.pick(b"0123456789.eE+-"))).collect();
    format!(r#"{{"attributes":{{"user":"ann"}},"cost":{digits}}}"#)
}
