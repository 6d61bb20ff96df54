//! Parses forwarding headers from the right.
//!
//! The left end of a header may come from the client, so nothing there may change how the right end is
//! parsed. An unclosed quote or invalid UTF-8 invalidates its own entry, and no entry further right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest unescaped node of a quoted string. An address with a port is shorter.
const MAX_NODE: usize = 64;

/// The syntax of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// A list of addresses.
    Addresses,
    /// A list of name-value pairs, whose values may be quoted (RFC 7239).
    Pairs,
}

/// An iterator over the entries of a header, the last one first.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    rest: Option<&'a [u8]>,
    syntax: Syntax,
}

/// An entry, written by one proxy.
#[derive(Debug)]
pub(super) struct ForwardedEntry<'a> {
    text: &'a [u8],
    syntax: Syntax,
}

impl<'a> Entries<'a> {
    pub(super) fn new(line: &'a [u8], syntax: Syntax) -> Self {
        Self { rest: Some(line), syntax }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = ForwardedEntry<'a>;

    fn next(&mut self) -> Option<ForwardedEntry<'a>> {
        let line = self.rest.take()?;
        let comma = match self.syntax {
            Syntax::Addresses => line.iter().rposition(|byte| *byte == b','),
            Syntax::Pairs => last_unquoted_comma(line),
        };
        let text = match comma {
            Some(comma) => {
                self.rest = Some(&line[..comma]);
                &line[comma + 1..]
            }
            None => line,
        };
        Some(ForwardedEntry { text: text.trim_ascii(), syntax: self.syntax })
    }
}

impl ForwardedEntry<'_> {
    /// Whether the entry is empty. Lists may have empty entries, which are ignored.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the address of the proxy's peer, if the entry contains one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self.syntax {
            Syntax::Addresses => address(self.text),
            Syntax::Pairs => for_node(self.text),
        }
    }
}

/// Scans from right to left. A quote is the end of a quoted string, which starts at the next unescaped quote.
fn last_unquoted_comma(line: &[u8]) -> Option<usize> {
    let mut end = line.len();
    loop {
        let at = line[..end].iter().rposition(|byte| matches!(byte, b',' | b'"'))?;
        if line[at] == b',' {
            return Some(at);
        }
        end = opening_quote(&line[..at])?;
    }
}

fn opening_quote(line: &[u8]) -> Option<usize> {
    let mut end = line.len();
    loop {
        let at = line[..end].iter().rposition(|byte| *byte == b'"')?;
        let backslashes = line[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(at);
        }
        end = at;
    }
}

/// Returns the address in the `for` pair of an element. `None` if there is more than one such pair.
fn for_node(element: &[u8]) -> Option<IpAddr> {
    let (mut found, mut rest) = (None, element);
    while !rest.is_empty() {
        let (pair, others) = split_pair(rest)?;
        rest = others;
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
        if pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for") {
            let node = node(pair[equals + 1..].trim_ascii())?;
            if found.replace(node).is_some() {
                return None;
            }
        }
    }
    found
}

/// Splits off the first pair, at its semicolon. `None` if a quote is not closed.
fn split_pair(element: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in element.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' if !is_quoted => return Some((&element[..at], &element[at + 1..])),
            _ => {}
        }
    }
    (!is_quoted).then_some((element, &[]))
}

/// Parses the value of a `for` pair. RFC 7239 requires quotes around values with a colon; this parser also
/// accepts them without quotes.
fn node(value: &[u8]) -> Option<IpAddr> {
    let Some(quoted) = value.strip_prefix(b"\"") else { return address(value) };
    let mut escaped = quoted.strip_suffix(b"\"")?.iter();
    let (mut node, mut len) = ([0; MAX_NODE], 0);
    while let Some(byte) = escaped.next() {
        let byte = if *byte == b'\\' { escaped.next()? } else { byte };
        *node.get_mut(len)? = *byte;
        len += 1;
    }
    address(&node[..len])
}

/// Parses an address with an optional port: `1.2.3.4`, `1.2.3.4:5`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:5`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let is_valid = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        IpAddr::V6(address.parse::<Ipv6Addr>().ok().filter(|_| is_valid)?)
    } else {
        match text.split_once(':') {
            // Several colons mean IPv6, which has a port only after brackets.
            Some((address, port)) if !port.contains(':') => {
                IpAddr::V4(address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port))?)
            }
            _ => text.parse().ok()?,
        }
    };
    Some(address.to_canonical())
}

/// Whether the text is a port number, or an obfuscated port that starts with `_` (RFC 7239).
fn is_port(text: &str) -> bool {
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_name_character = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    is_number || (text.len() > 1 && text.starts_with('_') && text.bytes().all(is_name_character))
}
