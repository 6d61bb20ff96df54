//! Keys, and the names of their states in Redis.

mod encoding;

use std::fmt;

use encoding::{MAX_BYTES, encode, is_unchanged};

use crate::error::TrypemaError;

/// A key of the Redis and hybrid providers, or the prefix of all names in Redis.
///
/// There are two constructors, and they agree: for every text that `try_from` accepts, `encode` returns the
/// same key.
///
/// - [`RedisKey::try_from`] accepts a text of 1 to 255 bytes without `:`, and rejects everything else.
/// - [`RedisKey::encode`] accepts any bytes: `user:123`, an IPv6 address, a token of 10 KiB, an empty text.
///
/// ```
/// use trypema::redis::RedisKey;
///
/// let key = RedisKey::try_from("user_123".to_string())?;
/// assert_eq!(key.to_string(), "user_123");
/// assert_eq!(key, RedisKey::encode("user_123"));
///
/// assert!(RedisKey::try_from("user:123").is_err());
/// assert_eq!(RedisKey::encode("user:123").to_string(), "user:123");
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RedisKey(String);

impl RedisKey {
    /// Returns a key for any bytes. Different bytes have different keys.
    ///
    /// Text stays as it is, except for `{`, `}`, `%` and control characters. These, and bytes that are not
    /// UTF-8, are written as `%` and two hexadecimal digits. If the result would be longer than 255 bytes,
    /// the key is the start of the encoded text, `%sha256-`, and the SHA-256 of all bytes. The key of no
    /// bytes is `%empty`. Neither form can result from escaping, so two inputs share a key only if they
    /// share a SHA-256.
    ///
    /// All names of a key are in one slot of a Cluster, whatever its bytes.
    ///
    /// ```
    /// use trypema::redis::RedisKey;
    ///
    /// assert_eq!(RedisKey::encode("2001:db8::/64").as_str(), "2001:db8::/64");
    /// assert_eq!(RedisKey::encode("a}b 50%").as_str(), "a%7Db 50%25");
    /// assert_eq!(RedisKey::encode([0, 255]).as_str(), "%00%FF");
    /// assert_eq!(RedisKey::encode("").as_str(), "%empty");
    /// assert!(RedisKey::encode([b'x'; 10_240]).as_str().len() <= 255);
    /// ```
    pub fn encode(bytes: impl AsRef<[u8]>) -> Self {
        Self(encode(bytes.as_ref()))
    }

    /// Returns the key with `suffix` appended.
    pub(crate) fn suffixed(&self, suffix: fmt::Arguments<'_>) -> Self {
        let text = format!("{self}{suffix}");
        // The text is already encoded. It is encoded again only if it has become too long.
        if text.len() <= MAX_BYTES { Self(text) } else { Self::encode(text) }
    }

    /// Returns the default prefix of all names.
    pub(crate) fn default_prefix() -> Self {
        Self("trypema".to_owned())
    }

    /// Returns the key as it is written in Redis; see [`RedisKey::encode`].
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RedisKey {
    type Error = TrypemaError;

    fn try_from(key: String) -> Result<Self, TrypemaError> {
        if key.is_empty() || key.len() > MAX_BYTES || key.contains(':') {
            let given = key.chars().take(64).collect();
            return Err(TrypemaError::InvalidRedisKey { given, max_bytes: MAX_BYTES });
        }
        Ok(if is_unchanged(&key) { Self(key) } else { Self::encode(key) })
    }
}

impl TryFrom<&str> for RedisKey {
    type Error = TrypemaError;

    fn try_from(key: &str) -> Result<Self, TrypemaError> {
        Self::try_from(key.to_owned())
    }
}

/// Encodes an IP address or network as a key: `203.0.113.9`, `2001:db8:1:2::/64`.
#[cfg(any(feature = "http", feature = "rules"))]
impl From<crate::address_key::AddressKey> for RedisKey {
    fn from(address: crate::address_key::AddressKey) -> Self {
        Self::encode(address.as_str())
    }
}

impl fmt::Display for RedisKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for RedisKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Returns the name of a state in Redis: `<prefix>:{<key>}:<suffix>`. The suffix is that of a strategy.
///
/// Neither the prefix nor the key contains a brace, and a key is never empty. So the first `{` ends the
/// prefix, the first `}` ends the key, two states never share a name, and all names of one key have the
/// same hash tag.
pub(super) fn state_name(prefix: &RedisKey, key: &RedisKey, suffix: &str) -> Vec<u8> {
    [prefix.0.as_bytes(), b":{", key.0.as_bytes(), b"}:", suffix.as_bytes()].concat()
}

/// Returns the name of the number of times that a state was reset.
pub(super) fn resets_name(state: &[u8]) -> Vec<u8> {
    [state, b":resets"].concat()
}

/// Returns the name of the set of live instances that lease units of a state.
pub(super) fn instances_name(state: &[u8]) -> Vec<u8> {
    [state, b":instances"].concat()
}

/// Returns the name of the table of reservations beside a counter.
pub(super) fn reservations_name(state: &[u8]) -> Vec<u8> {
    [state, b":reservations"].concat()
}

/// Returns the name of the mark of a receipt that was refunded.
pub(super) fn receipt_name(state: &[u8], id: u128) -> Vec<u8> {
    [state, format!(":receipt:{id:032x}").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(prefix: &str, key: &RedisKey) -> String {
        String::from_utf8(state_name(&RedisKey::encode(prefix), key, "absolute")).unwrap()
    }

    #[test]
    fn names_can_be_read() {
        let key = RedisKey::try_from("user_123").unwrap();
        assert_eq!(name("trypema", &key), "trypema:{user_123}:absolute");
        assert_eq!(name("myapp:ratelimit", &key), "myapp:ratelimit:{user_123}:absolute");
        assert_eq!(
            name("trypema", &RedisKey::encode("2001:db8:1:2::/64")),
            "trypema:{2001:db8:1:2::/64}:absolute"
        );
        assert_eq!(name("{}", &RedisKey::encode("a}b")), "%7B%7D:{a%7Db}:absolute");
        assert_eq!(name("", &RedisKey::encode("")), "%empty:{%empty}:absolute");
    }

    #[test]
    fn the_documented_validation_holds() {
        for invalid in ["", "user:123", &"x".repeat(256)] {
            assert!(RedisKey::try_from(invalid).is_err(), "{invalid:?}");
        }
        let longest = "x".repeat(255);
        assert_eq!(RedisKey::try_from(longest.as_str()).unwrap().as_str(), longest);
    }

    #[test]
    fn a_suffix_keeps_keys_short_and_apart() {
        let suffixed = |bytes: &str, part: u8| RedisKey::encode(bytes).suffixed(format_args!("/{part}/8"));
        assert_eq!(suffixed("a:b}", 0).as_str(), "a:b%7D/0/8");
        let (long, longer) = ("x".repeat(255), "%".repeat(1_000));
        let keys = [(&long, 0), (&long, 1), (&longer, 0), (&longer, 1)];
        let keys: std::collections::HashSet<_> =
            keys.into_iter().map(|(text, part)| suffixed(text, part)).collect();
        assert_eq!(keys.len(), 4);
        assert!(keys.iter().all(|key| key.as_str().len() <= MAX_BYTES));
    }

    proptest! {
        /// The two constructors agree on every text that `try_from` accepts.
        #[test]
        fn try_from_and_encode_agree(text in "[ab:%{}\u{0}\u{7f}\u{85}ä€]{0,3}|[a%{]{84,90}|.{0,300}") {
            match RedisKey::try_from(text.as_str()) {
                Ok(key) => prop_assert_eq!(key, RedisKey::encode(&text)),
                Err(_) => prop_assert!(text.is_empty() || text.len() > 255 || text.contains(':')),
            }
        }

        /// The prefix and the key can be parsed from a name, so two states never share one.
        #[test]
        fn names_are_injective(prefix in any::<Vec<u8>>(), key in any::<Vec<u8>>()) {
            let (prefix, key) = (RedisKey::encode(prefix), RedisKey::encode(key));
            let name = String::from_utf8(state_name(&prefix, &key, "absolute")).unwrap();
            let (read_prefix, rest) = name.split_once(":{").unwrap();
            let (read_key, strategy) = rest.split_once("}:").unwrap();
            prop_assert_eq!((read_prefix, read_key, strategy), (prefix.as_str(), key.as_str(), "absolute"));
            let is_one_tag = !read_key.is_empty() && !read_key.contains('}') && !read_prefix.contains('{');
            prop_assert!(is_one_tag, "{}", name);
        }
    }
}
