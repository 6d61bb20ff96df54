//! Parses addresses: one server, the sentinels of a service, or nodes of a cluster.

use std::borrow::Cow;

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, parse_redis_url};

use super::dial::tcp_settings;
use crate::TrypemaError;

const SENTINEL_PORT: u16 = 26379;
const SERVER_PORT: u16 = 6379;

/// A parsed address. Parsing resolves no names and opens no connection.
pub(super) enum Address {
    Server(ConnectionInfo),
    Sentinel(SentinelAddress),
    /// Some nodes of the cluster; the others are discovered.
    Cluster(Vec<ConnectionInfo>),
}

pub(super) struct SentinelAddress {
    pub(super) sentinels: Vec<ConnectionInfo>,
    pub(super) service: String,
    /// The login and settings of the master. Its host and port are placeholders: the sentinels name them.
    pub(super) master: ConnectionInfo,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, TrypemaError> {
        match url.split_once("://") {
            Some(("redis+sentinel", rest)) => UrlParts::new("redis", rest)?.sentinel(),
            Some(("rediss+sentinel", rest)) => UrlParts::new("rediss", rest)?.sentinel(),
            Some(("redis+cluster", rest)) => UrlParts::new("redis", rest)?.cluster(),
            Some(("rediss+cluster", rest)) => UrlParts::new("rediss", rest)?.cluster(),
            _ => Ok(Self::Server(server(url)?)),
        }
    }
}

/// Returns `like` with the host and port of `address` (`host:port`; an IPv6 host may have brackets). An
/// empty host stands for the host of `like`.
pub(super) fn with_address(like: &ConnectionInfo, address: &str) -> Option<ConnectionInfo> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let place = match like.addr() {
        ConnectionAddr::Tcp(own, _) => ConnectionAddr::Tcp(or_own(host, own), port),
        ConnectionAddr::TcpTls { host: own, insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: or_own(host, own),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => return None,
    };
    Some(like.clone().set_addr(place))
}

fn or_own(host: &str, own: &str) -> String {
    if host.is_empty() { own.to_owned() } else { host.to_owned() }
}

/// The parts of an address with several hosts. The client's parser accepts only one host at a time.
struct UrlParts<'u> {
    scheme: &'static str,
    /// Includes the `@`, or is empty.
    login: &'u str,
    hosts: Vec<&'u str>,
    path: Vec<&'u str>,
    query: Vec<(String, String)>,
    /// Includes the `#`, or is empty.
    fragment: &'u str,
}

impl<'u> UrlParts<'u> {
    fn new(scheme: &'static str, rest: &'u str) -> Result<Self, TrypemaError> {
        let (rest, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(invalid("a host is missing"));
        }
        let query = parse_redis_url(&format!("redis://host/?{query}"))
            .ok_or_else(|| invalid("the part after `?` cannot be read"))?
            .query_pairs()
            .map(|(name, value)| (Cow::into_owned(name), Cow::into_owned(value)))
            .collect();
        let path = path.split('/').filter(|segment| !segment.is_empty()).collect();
        Ok(Self { scheme, login, hosts, path, query, fragment })
    }

    fn sentinel(mut self) -> Result<Address, TrypemaError> {
        let (service, database) = match *self.path.as_slice() {
            [service] => (service.to_owned(), ""),
            [service, database] => (service.to_owned(), database),
            _ => return Err(invalid("need `/service-name` or `/service-name/database` after the sentinels")),
        };
        let username = self.take("sentinel_username");
        let password = self.take("sentinel_password");
        let master = self.host(self.login, self.hosts[0], SERVER_PORT, database)?;
        let mut sentinels = Vec::with_capacity(self.hosts.len());
        for host in &self.hosts {
            let info = self.host("", host, SENTINEL_PORT, "")?;
            let mut login = info.redis_settings().clone();
            login =
                username.iter().fold(login, |login, name| login.set_username(name).set_skip_set_lib_name());
            login = password.iter().fold(login, |login, word| login.set_password(word));
            sentinels.push(info.set_redis_settings(login));
        }
        Ok(Address::Sentinel(SentinelAddress { sentinels, service, master }))
    }

    fn cluster(self) -> Result<Address, TrypemaError> {
        if !matches!(*self.path.as_slice(), [] | ["0"]) {
            return Err(invalid("a cluster only supports database 0"));
        }
        let nodes = self.hosts.iter().map(|host| self.host(self.login, host, SERVER_PORT, ""));
        Ok(Address::Cluster(nodes.collect::<Result<_, _>>()?))
    }

    /// Returns the connection info of one host.
    fn host(
        &self,
        login: &str,
        host: &str,
        port: u16,
        database: &str,
    ) -> Result<ConnectionInfo, TrypemaError> {
        let Self { scheme, fragment, query, .. } = self;
        let query = match query.as_slice() {
            [] => "",
            [(name, value)] if name == "protocol" => match value.as_str() {
                "2" | "resp2" => "?protocol=resp2",
                "3" | "resp3" => "?protocol=resp3",
                _ => return Err(invalid("the protocol must be resp2 or resp3")),
            },
            [(name, _), ..] => {
                let other = query.iter().find(|(name, _)| name != "protocol").map_or(name, |(name, _)| name);
                return Err(invalid(&format!("unknown or repeated query parameter `{other}`")));
            }
        };
        let parsed = parse_redis_url(&format!("{scheme}://{host}"));
        let port = match parsed.as_ref().map(|url| url.port()) {
            Some(None) => format!(":{port}"),
            _ => String::new(),
        };
        server(&format!("{scheme}://{login}{host}{port}/{database}{query}{fragment}"))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let index = self.query.iter().position(|(other, _)| other == name)?;
        Some(self.query.remove(index).1)
    }
}

/// Parses the address of one server, and adds this crate's settings.
fn server(url: &str) -> Result<ConnectionInfo, TrypemaError> {
    let parsed = parse_redis_url(url).ok_or_else(|| {
        invalid(
            "need redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or \
             rediss+cluster://, and then a host",
        )
    })?;
    if parsed.port() == Some(0) {
        return Err(invalid("port 0 is no port of a server"));
    }
    let chose_protocol = parsed.query_pairs().any(|(name, _)| name == "protocol");
    // The client's messages never contain the user name or password.
    let info = url.into_connection_info().map_err(|error| invalid(&error.to_string()))?;
    let mut login = info.redis_settings().clone();
    login = match login.username() {
        None => login.set_lib_name("trypema", env!("CARGO_PKG_VERSION")),
        // `CLIENT SETINFO` needs a permission that no ACL rule grants on every version: Redis 7.0 does not know
        // the subcommand. Without the permission, each new connection would fill `ACL LOG`.
        Some(_) => login.set_skip_set_lib_name(),
    };
    if !chose_protocol {
        // With RESP3 the client reports the end of a connection. Every server since 6.0 supports it.
        login = login.set_protocol(ProtocolVersion::RESP3);
    }
    Ok(info.set_tcp_settings(tcp_settings()).set_redis_settings(login))
}

fn invalid(reason: &str) -> TrypemaError {
    TrypemaError::InvalidRedisAddress { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(info: &ConnectionInfo) -> String {
        let login = info.redis_settings();
        let scheme = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) { "tls " } else { "" };
        format!(
            "{scheme}{} {}:{} db{}",
            info.addr(),
            login.username().unwrap_or("-"),
            login.password().unwrap_or("-"),
            login.db()
        )
    }

    fn all_shown(url: &str) -> Vec<String> {
        match Address::parse(url).unwrap() {
            Address::Server(info) => vec![shown(&info)],
            Address::Cluster(nodes) => nodes.iter().map(shown).collect(),
            Address::Sentinel(address) => {
                let sentinels = address.sentinels.iter().map(shown);
                let login = shown(&address.master);
                let (_, login) = login.rsplit_once(&address.master.addr().to_string()).unwrap();
                sentinels.chain([format!("{}{login}", address.service)]).collect()
            }
        }
    }

    #[test]
    fn one_server() {
        assert_eq!(all_shown("redis://127.0.0.1"), ["127.0.0.1:6379 -:- db0"]);
        assert_eq!(all_shown("redis://ann:p%40ss@[::1]:7000/3"), ["::1:7000 ann:p@ss db3"]);
        assert_eq!(all_shown("rediss://:pass@host"), ["tls host:6379 -:pass db0"]);
        #[cfg(unix)]
        assert_eq!(all_shown("unix:///tmp/redis.sock?db=2&pass=p"), ["/tmp/redis.sock -:p db2"]);
    }

    #[test]
    fn sentinels_with_a_service() {
        assert_eq!(
            all_shown("redis+sentinel://ann:p%2Fw@a:1,b,[::1]:3/main/4?sentinel_password=s%26+p"),
            ["a:1 -:s& p db0", "b:26379 -:s& p db0", "::1:3 -:s& p db0", "main ann:p/w db4"]
        );
        assert_eq!(
            all_shown("rediss+sentinel://a/main?sentinel_username=u&sentinel_password=s&protocol=resp2"),
            ["tls a:26379 u:s db0", "main -:- db0"]
        );
    }

    #[test]
    fn nodes_of_a_cluster() {
        assert_eq!(
            all_shown("redis+cluster://:pw@a:1,b,10.0.0.1:7"),
            ["a:1 -:pw db0", "b:6379 -:pw db0", "10.0.0.1:7 -:pw db0"]
        );
        assert_eq!(all_shown("rediss+cluster://a:1/0"), ["tls a:1 -:- db0"]);
    }

    #[test]
    fn the_protocol_is_the_newer_one_unless_the_address_says_otherwise() {
        let protocol = |url| match Address::parse(url).unwrap() {
            Address::Server(info) => info.redis_settings().protocol(),
            Address::Cluster(nodes) => nodes[0].redis_settings().protocol(),
            Address::Sentinel(address) => address.master.redis_settings().protocol(),
        };
        for (resp2, resp3) in [
            ("redis://a?protocol=2", "redis://a"),
            ("redis+cluster://a?protocol=resp2", "redis+cluster://a"),
            ("redis+sentinel://a/m?protocol=resp2", "redis+sentinel://a/m?protocol=3"),
        ] {
            assert_eq!((protocol(resp2), protocol(resp3)), (ProtocolVersion::RESP2, ProtocolVersion::RESP3));
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "",
            "secret",
            "http://u:secret@host",
            "redis://u:secret@",
            "redis://u:secret@host/database",
            "redis://u:secret@host:port",
            "redis://u:secret@host?protocol=4",
            "redis://u:secret@0.0.0.0",
            "redis://u:secret@host:0",
            "redis+cluster://u:secret@host:0",
            "redis+sentinel://u:secret@a:1",
            "redis+sentinel://u:secret@a:1/",
            "redis+sentinel://u:secret@a:1/main/0/0",
            "redis+sentinel://u:secret@a:1,/main",
            "redis+sentinel://u:secret@a:port/main",
            "redis+sentinel://u:secret@a/main?sentinel_pasword=secret",
            "redis+cluster://u:secret@",
            "redis+cluster://u:secret@a:1/1",
            "redis+cluster://u:secret@a:1?db=secret",
            "rediss+cluster://u:secret@a:1#secret",
            "rediss+sentinel://u:secret@a:99999/main",
        ] {
            match Address::parse(url) {
                Err(error @ TrypemaError::InvalidRedisAddress { .. }) => {
                    assert!(!error.to_string().contains("secret"), "{error}");
                }
                Err(error) => panic!("{url}: {error}"),
                Ok(_) => panic!("{url} was understood"),
            }
        }
    }

    #[test]
    fn a_node_is_reached_as_the_one_that_named_it() {
        let Address::Server(like) = Address::parse("rediss://u:p@own:1").unwrap() else {
            panic!("not one server")
        };
        let reached = |address| with_address(&like, address).map(|info| shown(&info));
        assert_eq!(reached("10.0.0.1:7000").unwrap(), "tls 10.0.0.1:7000 u:p db0");
        assert_eq!(reached("::1:7000").unwrap(), "tls ::1:7000 u:p db0");
        assert_eq!(reached("[::1]:7000").unwrap(), "tls ::1:7000 u:p db0");
        assert_eq!(reached(":7000").unwrap(), "tls own:7000 u:p db0");
        assert_eq!([reached("host"), reached("host:"), reached("host:70000")], [None, None, None]);
    }
}
