//! Encodes any bytes, injectively, as a short text that is safe inside a Redis key.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The maximum length of a key in bytes. Names stay short enough to be read in a terminal.
pub(super) const MAX_BYTES: usize = 255;

/// The key of no bytes. Redis ignores an empty hash tag, so the names of an empty key could be in different
/// slots.
const EMPTY: &str = "%empty";

/// Separates the start of a long key from the SHA-256 of the whole. Like [`EMPTY`] it cannot be an escape,
/// because no two hexadecimal digits follow the `%`.
const DIGEST_MARK: &str = "%sha256-";

/// The longest escape of one character: four bytes, each as `%` and two digits.
const LONGEST_ESCAPE: usize = 12;

/// The number of bytes of a long key that stay readable, enough to recognise a namespace.
const READABLE_BYTES: usize = 64;

/// Whether [`encode`] returns `text` as it is.
pub(super) fn is_unchanged(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_BYTES && !text.contains(is_escaped)
}

/// Encodes `bytes` as described at [`RedisKey::encode`](super::RedisKey::encode).
pub(super) fn encode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => EMPTY.to_owned(),
        Ok(text) if is_unchanged(text) => text.to_owned(),
        _ => escape(bytes, MAX_BYTES).unwrap_or_else(|_| digest(bytes)),
    }
}

/// Whether a character is escaped. A brace would end the hash tag or begin another one, `%` begins an
/// escape, and a terminal interprets control characters.
fn is_escaped(character: char) -> bool {
    matches!(character, '{' | '}' | '%') || character.is_control()
}

/// Escapes `bytes`. If the result would be longer than `max_bytes`, the error is the part that fits.
fn escape(bytes: &[u8], max_bytes: usize) -> Result<String, String> {
    let mut text = String::with_capacity(max_bytes + LONGEST_ESCAPE);
    for chunk in bytes.utf8_chunks() {
        // Valid characters first, then the invalid bytes after them.
        let characters = chunk.valid().chars().map(Ok);
        for unit in characters.chain(chunk.invalid().iter().map(Err)) {
            let written = text.len();
            match unit {
                Ok(character) if !is_escaped(character) => text.push(character),
                Ok(character) => push_escaped(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(byte) => push_escaped(&mut text, std::slice::from_ref(byte)),
            }
            if text.len() > max_bytes {
                text.truncate(written);
                return Err(text);
            }
        }
    }
    Ok(text)
}

fn push_escaped(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

/// Returns the key of bytes whose escaped form is too long: its start, and a digest of all bytes.
fn digest(bytes: &[u8]) -> String {
    let mut text = escape(bytes, READABLE_BYTES).unwrap_or_else(|start| start);
    text.push_str(DIGEST_MARK);
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes that were encoded; `None` for a digest.
    fn decode(text: &str) -> Option<Vec<u8>> {
        if text == EMPTY {
            return Some(Vec::new());
        }
        let mut parts = text.split('%');
        let mut bytes = parts.next()?.as_bytes().to_vec();
        for part in parts {
            let (digits, rest) = part.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            bytes.extend_from_slice(rest.as_bytes());
        }
        Some(bytes)
    }

    #[test]
    fn every_byte_has_a_text_of_its_own() {
        let mut seen = HashMap::new();
        for one in 0..=u8::MAX {
            for bytes in [vec![one], vec![one, b'x'], vec![b'x', one], vec![one, one], vec![0xc3, one]] {
                let text = encode(&bytes);
                assert_eq!(decode(&text).as_deref(), Some(bytes.as_slice()), "{text}");
                let other = seen.insert(text, bytes.clone());
                assert!(other.is_none_or(|other| other == bytes));
            }
        }
        assert_eq!(encode(&(0..=31).collect::<Vec<u8>>()).len(), 3 * 32);
        assert_eq!(encode("ä€😀\u{85}".as_bytes()), "ä€😀%C2%85");
    }

    #[test]
    fn forms_that_escaping_never_has_stay_apart() {
        let long = "x".repeat(10_240);
        let digested = encode(long.as_bytes());
        assert_eq!(digested.len(), READABLE_BYTES + DIGEST_MARK.len() + 64);
        assert!(digested.starts_with("xxx") && digested.contains(DIGEST_MARK));
        assert_ne!(encode(format!("{long}x").as_bytes()), digested);
        for imitation in [EMPTY, digested.as_str()] {
            assert_ne!(encode(imitation.as_bytes()), imitation);
        }
    }

    proptest! {
        #[test]
        fn encoding_is_injective(one in any_bytes(), other in any_bytes()) {
            prop_assert_eq!(one == other, encode(&one) == encode(&other));
        }

        #[test]
        fn texts_are_short_safe_and_can_be_read_back(bytes in any_bytes()) {
            let text = encode(&bytes);
            prop_assert!((1..=MAX_BYTES).contains(&text.len()));
            let is_safe = !text.contains(['{', '}']) && !text.contains(char::is_control);
            prop_assert!(is_safe, "{}", text);
            match text.contains(DIGEST_MARK) {
                true => prop_assert!(bytes.len() * 3 > MAX_BYTES),
                false => prop_assert_eq!(decode(&text), Some(bytes.clone())),
            }
            let given = std::str::from_utf8(&bytes);
            prop_assert_eq!(given.is_ok_and(is_unchanged), given == Ok(text.as_str()));
        }
    }

    /// Generates bytes around every length bound, and bytes that look like encoded keys.
    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<Vec<u8>>(),
            "[a:%{}27BDempty]{0,6}".prop_map(String::into_bytes),
            any::<String>().prop_map(String::into_bytes),
            "[ab]{254,257}|[%ä€]{60,90}".prop_map(String::into_bytes),
            prop::sample::select(vec!["", EMPTY, "a%7Db", "a}b"]).prop_map(|text| text.as_bytes().to_vec()),
            any::<Vec<u8>>().prop_map(|bytes| encode(&bytes).into_bytes()),
        ]
    }
}
