//! Maps the fields of some protocol to attributes: headers, the entries of a descriptor, words, or the columns of a log.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Deserialize;
use trypema::TrypemaError;
use trypema::rules::has_dot_segments;

use super::Attributes;
use crate::refusal::Refusal;

/// The fields of one request.
pub(crate) trait Fields {
    /// Returns the value of a field, or `None` if it is missing or empty.
    ///
    /// # Errors
    ///
    /// The field has no single value.
    fn get(&self, name: &str) -> Result<Option<&str>, Refusal>;

    /// Returns the method of the request that carries the fields.
    fn method(&self) -> &str;

    /// Returns the address of the client.
    ///
    /// # Errors
    ///
    /// The fields do not say it.
    fn client_address(&self) -> Result<IpAddr, Refusal>;
}

/// The attributes that requests get, each name once.
#[derive(Debug, Clone)]
pub(crate) struct AttributeMap {
    pub(crate) attributes: Vec<Attribute>,
    /// For the path that the client has written.
    pub(crate) dot_segments: DotSegments,
}

/// One attribute of a request.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) kind: AttributeKind,
    pub(crate) source: AttributeSource,
}

/// The meaning of an attribute, which determines how its value is validated and normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeKind {
    /// The path of a URI.
    Endpoint,
    /// A method. If it is missing, the method of the request that carries the fields.
    Method,
    /// A host in lower case, without its port.
    Host,
    /// An IP address.
    Ip,
    /// Any text.
    Other,
}

/// The source of an attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttributeSource {
    /// A field of this name.
    Field(Box<str>),
    /// A literal of the configuration.
    Value(String),
    /// The address of the client, as the protocol tells it.
    ClientAddress,
}

/// What happens to a path with a segment `.` or `..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DotSegments {
    /// The request is refused.
    #[default]
    Refuse,
    /// The rules for every path that servers may read it as apply.
    Accept,
}

impl Attribute {
    pub(crate) fn new(name: &str, source: AttributeSource) -> Self {
        let kind = match name {
            "endpoint" => AttributeKind::Endpoint,
            "method" => AttributeKind::Method,
            "host" => AttributeKind::Host,
            "ip" => AttributeKind::Ip,
            _ => AttributeKind::Other,
        };
        Self { name: name.to_owned(), kind, source }
    }

    /// Returns the value of the attribute, or `None` if the request has none.
    fn value<'f>(&'f self, fields: &'f impl Fields) -> Result<Option<Cow<'f, str>>, Refusal> {
        let given = match &self.source {
            AttributeSource::ClientAddress => {
                return Ok(Some(Cow::Owned(fields.client_address()?.to_string())));
            }
            AttributeSource::Value(value) => Some(value.as_str()),
            AttributeSource::Field(field) => fields.get(field)?,
        };
        Ok(Some(match (self.kind, given) {
            (AttributeKind::Endpoint | AttributeKind::Ip, None) => return Err(self.missing()),
            (AttributeKind::Endpoint, Some(uri)) => path_of(uri)?.into(),
            (AttributeKind::Method, None) => fields.method().into(),
            (AttributeKind::Host, Some(host)) => Cow::Owned(normalize_host(host)),
            (_, Some(value)) => value.into(),
            (_, None) => return Ok(None),
        }))
    }

    /// Returns the refusal of a request that lacks a required attribute. Without it, rules would silently not
    /// apply.
    fn missing(&self) -> Refusal {
        let name = &self.name;
        Refusal::invalid(match &self.source {
            AttributeSource::Field(field) => {
                format!("{field} is missing; configure the proxy to send the attribute {name:?} in it")
            }
            AttributeSource::Value(_) | AttributeSource::ClientAddress => {
                format!("attribute {name:?} is missing")
            }
        })
    }
}

impl AttributeMap {
    /// Returns the attributes of a request.
    pub(crate) fn read(&self, fields: &impl Fields) -> Result<Attributes, Refusal> {
        let mut attributes = Attributes::default();
        for attribute in &self.attributes {
            if let Some(value) = attribute.value(fields)? {
                self.admit_path(attribute, &value)?;
                attributes.add(&attribute.name, &value)?;
            }
        }
        Ok(attributes)
    }

    /// Refuses a path because of how a client has written it.
    fn admit_path(&self, attribute: &Attribute, value: &str) -> Result<(), Refusal> {
        // A literal is the operator's.
        let is_by_client = matches!(attribute.source, AttributeSource::Field(_));
        if attribute.kind != AttributeKind::Endpoint || !is_by_client {
            return Ok(());
        }
        if value.contains('#') {
            return Err(Refusal::Fragment);
        }
        if self.dot_segments == DotSegments::Refuse && has_dot_segments(value) {
            return Err(TrypemaError::DotSegments.into());
        }
        Ok(())
    }
}

/// Normalises a host, so that a client cannot get several counters by writing it differently.
fn normalize_host(host: &str) -> String {
    let is_address = host.starts_with('[');
    let end = if is_address { host.find(']').map(|end| end + 1) } else { host.find(':') };
    host[..end.unwrap_or(host.len())].trim_end_matches('.').to_ascii_lowercase()
}

/// Returns the path of a URI, which may include scheme and host. It keeps a fragment, which is a part of the
/// path for some applications.
fn path_of(uri: &str) -> Result<&str, Refusal> {
    let uri = uri.split('?').next().unwrap_or_default();
    let path = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            // A backslash ends the host for some applications; like a fragment, it gets 400 below.
            let (host, path) = rest.split_at(rest.find(['/', '\\', '#']).unwrap_or(rest.len()));
            match host {
                // The WHATWG standard takes the `x` of `http:///x/login` for the host.
                "" => "",
                // It removes tabs, so that nothing may be left.
                host if host.contains(|character| character <= ' ') => "",
                _ if path.is_empty() => "/",
                _ => path,
            }
        }
        _ => uri,
    };
    if path.starts_with('/') || path == "*" {
        return Ok(path);
    }
    Err(Refusal::invalid("endpoint: need a path or a URI, as in /search?q=x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_what_proxies_send() {
        let paths = [
            ("/a/b?x=/y", "/a/b"),
            ("/", "/"),
            ("http://host/a?b", "/a"),
            ("https://host:1/a#b", "/a#b"),
            ("/a?b#c", "/a"),
            ("/a#b?c", "/a#b"),
            ("http://host", "/"),
            ("http://host?x=/y", "/"),
            ("*", "*"),
            ("/a?u=http://b/c", "/a"),
        ];
        for (uri, path) in paths {
            assert_eq!(path_of(uri).ok(), Some(path), "{uri}");
        }
        let others =
            ["", "x", "?a", "#a", "x/y", r"http://host\a/b", "http://host#a", "http:/a", "foo:http://x/a"];
        let without_host = [
            "http://",
            "http://?a",
            "http://#a",
            "http:///x/a",
            r"http://\x/a",
            r"http:///\x/a",
            "http://\t/x/a",
        ];
        for uri in others.iter().chain(&without_host) {
            assert!(path_of(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn hosts_are_written_in_one_way() {
        for host in ["Example.COM", "example.com.", "example.com:443", "example.com.:8080"] {
            assert_eq!(normalize_host(host), "example.com");
        }
        assert_eq!(normalize_host("[2001:DB8::1]:443"), "[2001:db8::1]");
    }
}
