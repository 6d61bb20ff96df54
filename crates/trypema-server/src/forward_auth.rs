//! Profiles of forward-auth: which request a proxy asks about, and how a denial is answered.
//!
//! A proxy names a profile in the path (`/v1/forward-auth/per-user`). Everything else stands in the configuration file, because the service
//! cannot tell a literal of the proxy's configuration from a value that a client chose.

mod settings;

use std::collections::HashMap;
use std::num::NonZeroU64;

use http::HeaderName;
use trypema::http::HeaderStyle;

use crate::deny_status::DenyStatus;

/// The profile of `/v1/forward-auth` without a name.
pub(crate) const DEFAULT: &str = "default";
/// The built-in profile for nginx, whose `auth_request` understands no denial but 401 and 403.
const NGINX: &str = "nginx";

/// Letters of a profile's name, so that it never needs percent-encoding and reads the same everywhere.
const MAX_NAME: usize = 64;

/// All profiles by name.
#[derive(Debug, Clone)]
pub(crate) struct Profiles(HashMap<String, Profile>);

/// The requests of one profile.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// The attributes, each name once; `endpoint`, `method`, `host` and `ip` are among them unless the profile removes them.
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) cost: NonZeroU64,
    pub(crate) deny_status: DenyStatus,
    pub(crate) headers: HeaderStyle,
}

/// One attribute of a request.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) source: Source,
}

/// The meaning of an attribute: its value is checked, and written in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The path of a URI.
    Endpoint,
    /// A method; without one, that of the proxy's own request.
    Method,
    /// A host in lower case, without its port.
    Host,
    /// An address.
    Ip,
    /// Any text.
    Other,
}

/// Where a value comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A header, which the proxy overwrites.
    Header(HeaderName),
    /// The configuration.
    Value(String),
    /// `X-Forwarded-For`, read from the right through the trusted proxies.
    ClientAddress,
}

impl Profiles {
    /// Returns the profile of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Profile> {
        self.0.get(name)
    }
}

impl Default for Profiles {
    /// The built-in profiles: `default` answers denials with 429, `nginx` with 401.
    fn default() -> Self {
        let nginx = Profile { deny_status: DenyStatus::UNAUTHORIZED, ..Profile::default() };
        Self(HashMap::from([(DEFAULT.to_owned(), Profile::default()), (NGINX.to_owned(), nginx)]))
    }
}

impl Default for Profile {
    /// The request's own attributes, cost 1, 429 for denials.
    fn default() -> Self {
        Self {
            attributes: own_attributes().into(),
            cost: NonZeroU64::MIN,
            deny_status: DenyStatus::TOO_MANY_REQUESTS,
            headers: HeaderStyle::Standard,
        }
    }
}

impl Attribute {
    fn new(name: &str, source: Source) -> Self {
        let role = match name {
            "endpoint" => Role::Endpoint,
            "method" => Role::Method,
            "host" => Role::Host,
            "ip" => Role::Ip,
            _ => Role::Other,
        };
        Self { name: name.to_owned(), role, source }
    }
}

/// The attributes of every request, unless a profile takes them from elsewhere.
fn own_attributes() -> [Attribute; 4] {
    let header = |name| Source::Header(HeaderName::from_static(name));
    [
        Attribute::new("endpoint", header("x-forwarded-uri")),
        Attribute::new("method", header("x-forwarded-method")),
        Attribute::new("host", header("x-forwarded-host")),
        Attribute::new("ip", Source::ClientAddress),
    ]
}

/// Whether this can be the name of a profile.
pub(crate) fn is_profile_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_letter)
}
