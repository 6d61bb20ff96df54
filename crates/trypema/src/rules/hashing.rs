//! Hashed attributes: their counters are named by a keyed hash of the value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::counter::{self, PlaceholderValue};
use super::set::{CompiledRule, OverrideAction, RuleSet};

/// The start of a hash in the name of a counter.
const PREFIX: &[u8] = b"hmac:";
/// The length of a hash: 160 bits, so that a client cannot construct two values with the same hash.
const HASH_BYTES: usize = 20;
const TEXT_BYTES: usize = PREFIX.len() + 2 * HASH_BYTES;
/// The block size of SHA-256, which HMAC pads its key to.
const BLOCK_BYTES: usize = 64;

/// The attributes whose values appear in no name of a counter, and the secret of their hashes (HMAC-SHA-256).
///
/// Lists, conditions and overrides match the values themselves. The names of counters have hashes, and so do Redis,
/// logs and everybody who reads them. A counter is found by either name: an operator who knows the value gives it, as in
/// `per-key|api_key=VALUE`, and one who only has a log gives `per-key|api_key=hmac:…`.
///
/// All processes that share counters need the same secret and attributes: with another one, each key has other
/// counters, and may spend its limit again.
///
/// ```
/// use std::sync::Arc;
/// use trypema::RateLimiter;
/// use trypema::rules::{Engine, HashedAttributes, Request, RuleSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::from_yaml(
///     "rules: [{id: per-key, scope: tenant, key_pattern: '{api_key}', strategy: {fixed_window: {limit: 2, window: 1h}}}]",
///     "rules.yaml",
/// )?;
/// let hashed = Arc::new(HashedAttributes::new(b"0123456789abcdef0123456789abcdef", ["api_key"]));
/// let engine = Engine::local(Arc::new(RateLimiter::builder().build()?), rules.with_hashed_attributes(&hashed));
///
/// let key = [("api_key", "sk-123")];
/// let verdict = engine.try_check(&Request::new(&key)).expect("local rules answer at once")?;
/// let counter = verdict.rules().next().map(|rule| rule.key.to_owned());
/// assert!(counter.is_some_and(|counter| counter.starts_with("per-key|api_key=hmac:") && counter.len() == 61));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HashedAttributes {
    names: Vec<Box<str>>,
    /// The state of SHA-256 after the padded key of the inner and of the outer hash.
    inner: Sha256,
    outer: Sha256,
}

/// A hash, as the names of counters have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttributeHash([u8; TEXT_BYTES]);

impl HashedAttributes {
    /// Returns the hashes of the attributes `names` with this secret. Use 32 random bytes or more.
    pub fn new(secret: &[u8], names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        let mut key = [0; BLOCK_BYTES];
        if secret.len() > BLOCK_BYTES {
            key[..32].copy_from_slice(&Sha256::digest(secret));
        } else {
            key[..secret.len()].copy_from_slice(secret);
        }
        let padded = |byte: u8| Sha256::new().chain_update(key.map(|own| own ^ byte));
        let names = names.into_iter().map(Into::into).collect();
        Self { names, inner: padded(0x36), outer: padded(0x5c) }
    }

    /// Returns a text that tells two secrets apart and reveals neither.
    pub fn fingerprint(&self) -> String {
        let hash = AttributeHash::of(self.hmac(&[b"the fingerprint of this secret"]));
        hash.as_str().trim_start_matches("hmac:").to_owned()
    }

    fn is_hashed(&self, attribute: &str) -> bool {
        self.names.iter().any(|name| **name == *attribute)
    }

    /// Returns the hash of a value. Equal values of different attributes have different hashes.
    fn hash(&self, attribute: &str, value: PlaceholderValue<'_>) -> AttributeHash {
        let mut text = String::new();
        value.write(&mut text);
        AttributeHash::of(self.hmac(&[attribute.as_bytes(), &[0], text.as_bytes()]))
    }

    fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let inner = parts.iter().fold(self.inner.clone(), |inner, part| inner.chain_update(part));
        self.outer.clone().chain_update(inner.finalize()).finalize().into()
    }
}

impl fmt::Debug for HashedAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashedAttributes").field("names", &self.names).finish_non_exhaustive()
    }
}

impl AttributeHash {
    fn of(digest: [u8; 32]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; TEXT_BYTES];
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        for (byte, digits) in digest.iter().zip(text[PREFIX.len()..].chunks_exact_mut(2)) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(text)
    }

    pub(super) fn as_str(&self) -> &str {
        // Always ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether a text is written as a hash is.
    fn is_written_as(text: &str) -> bool {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = text.as_bytes().strip_prefix(PREFIX);
        digits.is_some_and(|digits| digits.len() == 2 * HASH_BYTES && digits.iter().all(is_digit))
    }
}

impl RuleSet {
    /// Returns the same rules, with counters that are named by hashes of these attributes. Overrides may name the
    /// values or their hashes.
    #[must_use]
    pub fn with_hashed_attributes(mut self, hashed: &Arc<HashedAttributes>) -> Self {
        let has_hashed = |rule: &CompiledRule| {
            rule.placeholders.iter().any(|placeholder| hashed.is_hashed(&placeholder.name))
        };
        for number in 0..self.rules.len() {
            let Some(rule) = self.rules.get(number).filter(|rule| has_hashed(rule)) else { continue };
            let overrides: Vec<_> = self.overrides_with_values(rule).collect();
            let Some(rule) = self.rules.get_mut(number) else { continue };
            rule.hashed = Some(Arc::clone(hashed));
            rule.overrides_by_key = overrides
                .into_iter()
                .map(|(values, action)| (rule.counter_of(&values).into(), action))
                .collect();
        }
        self.hashed = Some(Arc::clone(hashed));
        self
    }

    /// Returns the overrides of a rule with the values of their keys.
    fn overrides_with_values(
        &self,
        rule: &CompiledRule,
    ) -> impl Iterator<Item = (BTreeMap<String, String>, OverrideAction)> {
        let short = rule.overrides_by_key.iter();
        let short = short.filter_map(|(key, action)| Some((self.values_of(key)?.values, action.clone())));
        short.chain(rule.overrides_of_long_keys.iter().cloned())
    }

    /// Returns the value of an attribute as logs and responses may have it.
    pub(super) fn shown_value(&self, attribute: u16, value: String) -> String {
        let name = self.attribute_name(attribute);
        match self.hashed.as_ref().filter(|hashed| hashed.is_hashed(name)) {
            Some(hashed) => hashed.hash(name, PlaceholderValue::of(name, &value)).as_str().to_owned(),
            None => value,
        }
    }
}

impl CompiledRule {
    /// Returns the value of a placeholder in the name of a counter, of which `value` is the request's.
    pub(super) fn counted_value<'v>(&self, name: &str, value: PlaceholderValue<'v>) -> PlaceholderValue<'v> {
        match self.hashed.as_ref().filter(|hashed| hashed.is_hashed(name)) {
            Some(hashed) => PlaceholderValue::Hash(hashed.hash(name, value)),
            None => value,
        }
    }

    /// The same for a value that an operator wrote, who may have copied a hash from a log.
    pub(super) fn named_value<'v>(&self, name: &str, value: PlaceholderValue<'v>) -> PlaceholderValue<'v> {
        match value {
            PlaceholderValue::Text(text) if self.hashed.is_some() && AttributeHash::is_written_as(text) => {
                value
            }
            _ => self.counted_value(name, value),
        }
    }

    /// Adds an override, and returns whether the key had none.
    pub(super) fn add_override(&mut self, values: &BTreeMap<String, String>, action: OverrideAction) -> bool {
        let key = self.counter_of(values);
        if self.overrides_by_key.contains_key(&*key) {
            return false;
        }
        if key.contains(counter::DIGEST_SEPARATOR) {
            self.overrides_of_long_keys.push((values.clone(), action.clone()));
        }
        self.overrides_by_key.insert(key.into(), action);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limiter::RateLimiter;
    use crate::rules::{Engine, Request};

    /// Two cases of RFC 4231, with a short and a long key.
    #[test]
    fn hashes_are_hmac_sha256() {
        let hmac = |key: &[u8], data: &[u8]| {
            let digest = HashedAttributes::new(key, [""; 0]).hmac(&[data]);
            digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(
            hmac(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    const RULES: &str = "
rules:
  - {id: each, scope: tenant, key_pattern: '{api_key}', strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: vip, scope: tenant, key_pattern: '{api_key}', when: {api_key: ['vip*']}, strategy: {fixed_window: {limit: 9, window: 1h}}}
overrides:
  - {rule: each, key: {api_key: root}, strategy: {fixed_window: {limit: 50, window: 1h}}}
  - {rule: each, key: {api_key: mallory}, verdict: block}
  - {rule: each, key: {api_key: LONG}, strategy: {fixed_window: {limit: 70, window: 1h}}}
block:
  api_key: [stolen]
";
    const SECRET: &[u8] = b"a secret of the tests, of 32 bytes";

    fn engine(rules: &str) -> Engine {
        let rules = RuleSet::from_yaml(rules, "rules").unwrap();
        let hashed = Arc::new(HashedAttributes::new(SECRET, ["api_key"]));
        let limiter = Arc::new(RateLimiter::builder().build().unwrap());
        Engine::local(limiter, rules.with_hashed_attributes(&hashed))
    }

    /// Returns the names, limits and remaining units of the counters of a request.
    fn checked(engine: &Engine, attributes: &[(&str, &str)]) -> Vec<(String, u64, u64)> {
        let verdict = engine.try_check(&Request::new(attributes)).unwrap().unwrap();
        let of = verdict
            .rules()
            .map(|rule| (rule.key.to_owned(), rule.decision.limit(), rule.decision.remaining()));
        of.collect()
    }

    #[test]
    fn rules_match_values_and_count_hashes() {
        let long = "l".repeat(400);
        let engine = engine(&RULES.replace("LONG", &long));
        let limit_of = |value: &str| checked(&engine, &[("api_key", value)])[0].1;
        assert_eq!([limit_of("ann"), limit_of("root"), limit_of(&long)], [5, 50, 70]);
        let blocked = engine.try_check(&Request::new(&[("api_key", "mallory")])).unwrap().unwrap();
        assert!(blocked.is_blocked());
        let listed = engine.try_check(&Request::new(&[("api_key", "stolen")])).unwrap().unwrap();
        assert!(listed.is_blocked());
        let entry = listed.listed_entry().unwrap();
        assert!(AttributeHash::is_written_as(entry), "{entry}");

        let vip = checked(&engine, &[("api_key", "vip-1"), ("user", "vip-1")]);
        assert_eq!(vip.iter().map(|(_, limit, _)| *limit).collect::<Vec<_>>(), [5, 5, 9]);
        assert_eq!(vip[1].0, "user|user=vip-1");
        assert!(
            vip.iter().filter(|(key, ..)| key.contains("api_key")).all(|(key, ..)| !key.contains("vip-1"))
        );
        let (other, ..) = &checked(&engine, &[("api_key", "vip-2")])[0];
        assert_ne!(*other, vip[0].0);
        // A client that sends a hash does not get the counter of its value.
        let hash = vip[0].0.split_once('=').unwrap().1.to_owned();
        assert_ne!(checked(&engine, &[("api_key", &hash)])[0].0, vip[0].0);
    }

    #[test]
    fn a_counter_is_found_by_its_value_and_by_its_hash() {
        let engine = engine(&RULES.replace("LONG", "long"));
        let (key, _, left) = checked(&engine, &[("api_key", "root")]).remove(0);
        assert_eq!(left, 49);
        let found = |name: &str| {
            let found = trypema_testkit::blocking::wait_for(engine.inspect(name, 0)).unwrap().unwrap();
            found.rules().map(|rule| (rule.key.to_owned(), rule.decision.remaining())).next().unwrap()
        };
        assert_eq!(found("each|api_key=root"), (key.clone(), 49));
        assert_eq!(found(&key), (key.clone(), 49));
    }

    #[test]
    fn hashing_twice_is_hashing_once_and_secrets_differ() {
        let rules = || RuleSet::from_yaml(RULES, "rules").unwrap();
        let hashed = |secret: &[u8]| Arc::new(HashedAttributes::new(secret, ["api_key"]));
        let once = rules().with_hashed_attributes(&hashed(SECRET));
        let twice = rules().with_hashed_attributes(&hashed(SECRET)).with_hashed_attributes(&hashed(SECRET));
        assert!(twice.changes_since(&once).is_empty());
        assert_ne!(hashed(SECRET).fingerprint(), hashed(b"another secret").fingerprint());
        assert_eq!(hashed(SECRET).fingerprint().len(), 40);
        let debug = format!("{:?}", hashed(SECRET));
        assert!(debug.contains("api_key") && !debug.contains("inner"), "{debug}");
    }
}
