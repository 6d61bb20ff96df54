//! Text that is safe to send, whoever wrote it.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

/// The longest name of a policy that is shown, in characters: proxies commonly give all header lines of a
/// response 4 KiB together, and several policies have to fit in.
pub(super) const MAX_NAME: usize = 64;

/// What is kept of a longer name; the digest of all of it follows.
const NAME_START: usize = MAX_NAME - 1 - DIGEST;

/// Hexadecimal digits of a digest.
const DIGEST: usize = 16;

/// A policy's name as clients see it, in headers and in bodies: printable ASCII of at most 64 characters.
///
/// Other characters are percent-encoded as UTF-8, and of a longer name the end gives way to a digest, so that
/// names that differ still differ. An ordinary name is not copied.
pub(super) fn policy_name(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME && name.bytes().all(is_printable) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(MAX_NAME + 3);
    for byte in name.bytes().take(MAX_NAME + 1) {
        push_percent_encoded(&mut shown, byte, is_printable);
    }
    if shown.len() > MAX_NAME {
        shown.truncate(NAME_START);
        // Writing to a string cannot fail.
        let _ = write!(shown, "~{:0DIGEST$x}", digest(name));
    }
    Cow::Owned(shown)
}

/// `byte` as it is where `is_plain` says so, else as `%` and two digits.
pub(super) fn push_percent_encoded(text: &mut String, byte: u8, is_plain: fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii() && is_plain(byte) {
        return text.push(char::from(byte));
    }
    text.push('%');
    for nibble in [byte >> 4, byte & 15] {
        text.push(char::from(DIGITS[usize::from(nibble)]));
    }
}

/// Space and the visible characters of ASCII.
pub(super) fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

/// `text` on one line and of at most `most` characters; a longer one ends in an ellipsis.
pub(super) fn one_line(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let clean = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    let mut line: String = text.chars().map(clean).take(most).collect();
    if text.chars().nth(most).is_some() {
        line.pop();
        line.push('…');
    }
    Cow::Owned(line)
}

/// JSON that stays text inside an HTML page and inside a script, whatever is in its strings.
///
/// The characters that are replaced occur nowhere in JSON but in strings, where they may be written as escapes.
pub(super) fn html_safe_json(value: &impl Serialize) -> String {
    // Structs of strings and numbers always have a JSON form.
    let json = serde_json::to_string(value).unwrap_or_default();
    if !json.contains(needs_escape) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 32);
    for char in json.chars() {
        if needs_escape(char) {
            let _ = write!(safe, "\\u{:04x}", u32::from(char));
        } else {
            safe.push(char);
        }
    }
    safe
}

/// The last two end a line in scripts, though not in JSON.
fn needs_escape(char: char) -> bool {
    matches!(char, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

/// FNV-1a: names come from an operator, so telling them apart is enough.
fn digest(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_not_copied() {
        assert!(matches!(policy_name("per minute \"\\\""), Cow::Borrowed(_)));
        assert!(matches!(policy_name(&"n".repeat(MAX_NAME)), Cow::Borrowed(_)));
    }

    #[test]
    fn other_characters_are_encoded_and_not_dropped() {
        assert_eq!(policy_name("a\r\nb"), "a%0D%0Ab");
        assert_eq!(policy_name("é"), "%C3%A9");
        assert_eq!(policy_name(""), "");
    }

    #[test]
    fn a_long_name_ends_in_a_digest_of_all_of_it() {
        let (one, other) = ("n".repeat(65), "n".repeat(66));
        assert_eq!(policy_name(&one).len(), MAX_NAME);
        assert!(policy_name(&one).starts_with(&"n".repeat(NAME_START)));
        assert_ne!(policy_name(&one), policy_name(&other));
        // Short enough as it is, too long once encoded.
        assert_eq!(policy_name(&"é".repeat(20)).len(), MAX_NAME);
    }

    #[test]
    fn a_line_is_bounded_in_characters() {
        assert_eq!(one_line("log in", 6), "log in");
        assert_eq!(one_line("log in now", 6), "log i…");
        assert_eq!(one_line("éééé", 4), "éééé");
        assert_eq!(one_line("a\r\nb", 6), "a\u{FFFD}\u{FFFD}b");
    }

    #[test]
    fn markup_in_json_is_escaped() {
        let json = html_safe_json(&["</script>&\u{2028}"]);
        assert_eq!(json, r#"["\u003c/script\u003e\u0026\u2028"]"#);
        assert_eq!(html_safe_json(&["a"]), r#"["a"]"#);
    }
}
