//! Validates `forward_auth` of the configuration file.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU64;

use http::HeaderName;

use super::{MAX_NAME, Profile, Profiles, is_profile_name, own_attributes};
use crate::attributes::{
    Attribute, AttributeKind, AttributeMap, AttributeSource, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE,
    MAX_ATTRIBUTES,
};
use crate::deny_status::{DenyStatus, NOT_A_DENIAL};
use crate::settings::forward_auth::{AttributeSettings, ForwardAuthSettings, ProfileSettings};
use crate::settings::{InvalidConfig, InvalidSetting};

/// Headers that hold several values, or one value that a client can write in several ways. With them, one
/// client would have several counters.
const AMBIGUOUS: [&str; 5] = ["authorization", "cookie", "forwarded", "host", "x-forwarded-for"];

/// The error of `null` for an attribute that is not a standard one.
const NOT_REMOVABLE: &str = "`null` removes `endpoint`, `method`, `host` or `ip`; others need `header` or `value`, as in {header: X-User}";

impl Profiles {
    /// Adds the configured profiles to the built-in ones. A configured profile replaces a built-in one of
    /// the same name.
    ///
    /// # Errors
    ///
    /// All fields that are invalid.
    pub(crate) fn new(settings: &ForwardAuthSettings) -> Result<Self, InvalidConfig> {
        let (mut profiles, mut invalid) = (Self::default(), InvalidConfig::default());
        for (name, settings) in &settings.profiles {
            if !is_profile_name(name) {
                let reason =
                    format!("a profile's name needs 1 to {MAX_NAME} lower-case letters, digits, `-` and `_`");
                invalid.add(InvalidSetting::new(format!("forward_auth.profiles.{name}"), reason));
            }
            profiles.0.insert(name.clone(), settings.profile(name, &mut invalid));
        }
        if invalid.is_empty() { Ok(profiles) } else { Err(invalid) }
    }
}

impl ForwardAuthSettings {
    /// Returns the names of the attributes that are hashed.
    ///
    /// # Errors
    ///
    /// An attribute is hashed in one profile and not in another: they would have different counters.
    pub(crate) fn hashed_attributes(&self) -> Result<BTreeSet<String>, InvalidConfig> {
        let attributes = || {
            self.profiles.iter().flat_map(|(profile, settings)| {
                let own = settings.attributes.0.iter();
                own.filter_map(move |(name, settings)| Some((profile, name, settings.as_ref()?)))
            })
        };
        let hashed = attributes().filter(|(.., settings)| settings.hash.is_some());
        let hashed: BTreeSet<String> = hashed.map(|(_, name, _)| name.clone()).collect();
        let mut invalid = InvalidConfig::default();
        for (profile, name, settings) in attributes() {
            if settings.hash.is_none() && hashed.contains(name) {
                let setting = format!("forward_auth.profiles.{profile}.attributes.{name}");
                let reason = "needs `hash`, because it has one in another profile: an attribute is hashed in all or in none";
                invalid.add(InvalidSetting::new(setting, reason));
            }
        }
        if invalid.is_empty() { Ok(hashed) } else { Err(invalid) }
    }
}

impl ProfileSettings {
    /// Returns the profile, with defaults in place of fields that are invalid.
    fn profile(&self, name: &str, invalid: &mut InvalidConfig) -> Profile {
        let field = |field: &str| format!("forward_auth.profiles.{name}.{field}");
        let attributes = AttributeMap {
            attributes: self.attributes(name, invalid),
            dot_segments: self.dot_segments.unwrap_or_default(),
        };
        let mut profile = Profile { attributes, ..Profile::default() };
        if let Some(cost) = self.cost {
            let free = "need at least 1: requests that cost nothing would never be limited";
            let cost = NonZeroU64::new(cost).ok_or_else(|| InvalidSetting::new(field("cost"), free));
            profile.cost = invalid.take(cost).unwrap_or(profile.cost);
        }
        if let Some(status) = self.deny_status {
            let status = DenyStatus::new(status);
            let status = status.ok_or_else(|| InvalidSetting::new(field("deny_status"), NOT_A_DENIAL));
            profile.deny_status = invalid.take(status).unwrap_or(profile.deny_status);
        }
        if let Some(headers) = self.headers {
            profile.headers = headers.into();
        }
        profile
    }

    /// Returns the configured attributes and the standard ones that are not configured. An attribute that
    /// is `null` is left out.
    fn attributes(&self, profile: &str, invalid: &mut InvalidConfig) -> Vec<Attribute> {
        let configured = &self.attributes.0;
        let mut attributes = Vec::with_capacity(configured.len() + own_attributes().len());
        for (name, settings) in configured {
            let attribute = match settings {
                Some(settings) => settings.attribute(name),
                None if own_attributes().iter().any(|own| own.name == *name) => continue,
                None => Err(NOT_REMOVABLE.to_owned()),
            };
            let setting = || format!("forward_auth.profiles.{profile}.attributes.{name}");
            attributes
                .extend(invalid.take(attribute.map_err(|reason| InvalidSetting::new(setting(), reason))));
        }
        let own = own_attributes().into_iter().filter(|own| !configured.contains_key(&own.name));
        attributes.extend(own);
        if attributes.len() > MAX_ATTRIBUTES {
            let reason = format!(
                "a request has at most {MAX_ATTRIBUTES} attributes, `endpoint`, `method`, `host` and `ip` included"
            );
            invalid.add(InvalidSetting::new(format!("forward_auth.profiles.{profile}.attributes"), reason));
        }
        attributes
    }
}

impl AttributeSettings {
    fn attribute(&self, name: &str) -> Result<Attribute, String> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if !(1..=MAX_ATTRIBUTE_NAME).contains(&name.len()) || !name.bytes().all(is_letter) {
            return Err(format!(
                "an attribute's name needs 1 to {MAX_ATTRIBUTE_NAME} letters, digits, `_`, `-` and `.`"
            ));
        }
        let source = match (&self.header, &self.value) {
            (Some(header), None) => AttributeSource::Field(header_name(header)?.as_str().into()),
            (None, Some(value)) => AttributeSource::Value(value.clone()),
            _ => return Err("need either `header` or `value`, as in {header: X-User}".to_owned()),
        };
        let attribute = Attribute::new(name, source);
        if let AttributeSource::Value(value) = &attribute.source {
            check_literal(attribute.kind, value)?;
        }
        Ok(attribute)
    }
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::try_from(text).map_err(|_| format!("`{text}` cannot be the name of a header"))?;
    if text.contains('_') {
        return Err(format!(
            "`{text}`: nginx drops headers with `_`, and some programs take `_` for `-`; use `-` in the name"
        ));
    }
    if AMBIGUOUS.contains(&name.as_str()) {
        return Err(format!(
            "`{text}` holds several values, or one that clients can write in several ways; \
             have the proxy send the value in a header of its own"
        ));
    }
    Ok(name)
}

fn check_literal(kind: AttributeKind, value: &str) -> Result<(), String> {
    if value.is_empty() || value.len() > MAX_ATTRIBUTE_VALUE {
        return Err(format!("value: need 1 to {MAX_ATTRIBUTE_VALUE} bytes"));
    }
    match kind {
        AttributeKind::Endpoint if !value.starts_with('/') => {
            Err("value: need a path, as in /search".to_owned())
        }
        AttributeKind::Ip if value.parse::<IpAddr>().is_err() => {
            Err("value: need an address, as in 203.0.113.9 or 2001:db8::1".to_owned())
        }
        _ => Ok(()),
    }
}
