//! Forward-auth profiles: the attributes of the proxied request, its cost, and the response to a denial.
//!
//! A proxy names a profile in the path (`/v1/forward-auth/per-user`). Everything else is set in the
//! configuration file, because the server cannot distinguish a literal of the proxy's configuration from a
//! value that a client chose.

mod settings;

use std::collections::HashMap;
use std::num::NonZeroU64;

use http::StatusCode;
use trypema::http::HeaderStyle;

use crate::attributes::{Attribute, AttributeMap, AttributeSource, DotSegments};
use crate::deny_status::DenyStatus;

/// The profile of `/v1/forward-auth` without a name.
pub(crate) const DEFAULT: &str = "default";
/// The built-in profile for nginx, whose `auth_request` accepts no denial but 401 and 403.
const NGINX: &str = "nginx";

/// The maximum length of a profile's name.
const MAX_NAME: usize = 64;

/// All profiles by name.
#[derive(Debug, Clone)]
pub(crate) struct Profiles(HashMap<String, Profile>);

/// One profile.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// `endpoint`, `method`, `host` and `ip` are included unless the profile removes them.
    pub(crate) attributes: AttributeMap,
    pub(crate) cost: NonZeroU64,
    pub(crate) deny_status: DenyStatus,
    pub(crate) headers: HeaderStyle,
}

impl Profiles {
    /// Returns the profile of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Profile> {
        self.0.get(name)
    }
}

impl Default for Profiles {
    /// Returns the built-in profiles: `default` answers denials with 429, `nginx` with 401.
    fn default() -> Self {
        let nginx = Profile { deny_status: DenyStatus::UNAUTHORIZED, ..Profile::default() };
        Self(HashMap::from([(DEFAULT.to_owned(), Profile::default()), (NGINX.to_owned(), nginx)]))
    }
}

impl Default for Profile {
    /// Returns a profile with the standard attributes, cost 1, and 429 for denials.
    fn default() -> Self {
        Self {
            attributes: AttributeMap {
                attributes: own_attributes().into(),
                dot_segments: DotSegments::default(),
            },
            cost: NonZeroU64::MIN,
            deny_status: DenyStatus::TOO_MANY_REQUESTS,
            headers: HeaderStyle::Standard,
        }
    }
}

impl Profile {
    /// Returns the status of a request whose path is refused: 400, unless the profile is for `auth_request`, which
    /// makes a 500 of it.
    pub(crate) fn refusal_status(&self) -> StatusCode {
        if self.is_for_auth_request() { self.deny_status.status() } else { StatusCode::BAD_REQUEST }
    }

    /// Whether the profile denies as nginx's `auth_request` does: with 401 or 403.
    pub(crate) fn is_for_auth_request(&self) -> bool {
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&self.deny_status.status())
    }
}

/// Returns the standard attributes, which every request has unless a profile redefines them.
fn own_attributes() -> [Attribute; 4] {
    let header = |name: &str| AttributeSource::Field(name.into());
    [
        Attribute::new("endpoint", header("x-forwarded-uri")),
        Attribute::new("method", header("x-forwarded-method")),
        Attribute::new("host", header("x-forwarded-host")),
        Attribute::new("ip", AttributeSource::ClientAddress),
    ]
}

/// Whether `name` is a valid profile name: lower-case letters, digits, `-` and `_`, which never need
/// percent-encoding.
pub(crate) fn is_profile_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_letter)
}
