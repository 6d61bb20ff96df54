//! `forward_auth` of the configuration file, before validation.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::HeaderSetting;

/// The profiles that proxies may name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForwardAuthSettings {
    pub(crate) profiles: BTreeMap<String, ProfileSettings>,
}

/// One profile.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProfileSettings {
    /// The attributes by name; `null` removes a standard attribute.
    pub(crate) attributes: BTreeMap<String, Option<AttributeSettings>>,
    pub(crate) cost: Option<u64>,
    pub(crate) deny_status: Option<u16>,
    pub(crate) headers: Option<HeaderSetting>,
}

/// The source of an attribute's value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttributeSettings {
    pub(crate) header: Option<String>,
    pub(crate) value: Option<String>,
}
