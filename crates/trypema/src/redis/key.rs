//! Keys and the names they have in Redis.

use std::fmt;

use crate::error::TrypemaError;

/// The longest key, in bytes: names stay short enough to be read in a terminal.
const MAX_BYTES: usize = 255;

/// A key that limits are counted for in Redis: not empty, at most 255 bytes, without `:`, which separates the
/// parts of a name.
///
/// ```
/// use trypema::redis::RedisKey;
///
/// let key = RedisKey::try_from("user_123".to_string())?;
/// assert_eq!(key.to_string(), "user_123");
/// assert!(RedisKey::try_from("user:123").is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RedisKey(String);

impl RedisKey {
    /// The prefix of all names, unless another one is chosen.
    pub(crate) fn default_prefix() -> Self {
        Self("trypema".to_owned())
    }

    /// The key as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RedisKey {
    type Error = TrypemaError;

    fn try_from(key: String) -> Result<Self, TrypemaError> {
        if !key.is_empty() && key.len() <= MAX_BYTES && !key.contains(':') {
            return Ok(Self(key));
        }
        Err(TrypemaError::InvalidRedisKey { given: key.chars().take(64).collect(), max_bytes: MAX_BYTES })
    }
}

impl TryFrom<&str> for RedisKey {
    type Error = TrypemaError;

    fn try_from(key: &str) -> Result<Self, TrypemaError> {
        Self::try_from(key.to_owned())
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

/// `<prefix>:{<key>}:<strategy>`: the name of a state. Braces in a key would end the hash tag early, so they are
/// written `%7B` and `%7D`, and `%` itself as `%25`: two keys never share a name, and all names of one key are in
/// one slot of a Cluster.
pub(super) fn state_name(prefix: &RedisKey, key: &RedisKey, strategy: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.0.len() + key.0.len() + strategy.len() + 4);
    escape(&mut name, &prefix.0);
    name.extend_from_slice(b":{");
    escape(&mut name, &key.0);
    name.extend_from_slice(b"}:");
    name.extend_from_slice(strategy.as_bytes());
    name
}

fn escape(name: &mut Vec<u8>, part: &str) {
    if !part.contains(['{', '}', '%']) {
        return name.extend_from_slice(part.as_bytes());
    }
    for byte in part.bytes() {
        match byte {
            b'{' => name.extend_from_slice(b"%7B"),
            b'}' => name.extend_from_slice(b"%7D"),
            b'%' => name.extend_from_slice(b"%25"),
            byte => name.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> String {
        let key = RedisKey::try_from(key).unwrap_or_else(|error| panic!("{error}"));
        String::from_utf8_lossy(&state_name(&RedisKey::default_prefix(), &key, "absolute")).into_owned()
    }

    #[test]
    fn braces_do_not_end_the_tag() {
        assert_eq!(name("user_123"), "trypema:{user_123}:absolute");
        assert_eq!(name("a}b"), "trypema:{a%7Db}:absolute");
        assert_ne!(name("a%7Db"), name("a}b"));
        assert_eq!(name("{}"), "trypema:{%7B%7D}:absolute");
    }
}
