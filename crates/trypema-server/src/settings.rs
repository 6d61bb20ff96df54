//! All settings. Flags, environment variables and the configuration file use the same names.

mod choices;
mod file;
pub(crate) mod forward_auth;
mod invalid;
mod table;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use trypema::rules::Period;

pub(crate) use self::choices::HeaderSetting;
pub use self::choices::{AdminListen, FailurePolicy, LogDenials, LogFormat, LogLevel, Provider};
pub(crate) use self::file::SettingsFile;
use self::forward_auth::ForwardAuthSettings;
pub use self::invalid::{InvalidConfig, InvalidSetting, SettingOrigin};
pub(crate) use self::table::variable;
use crate::secret::{Secret, SecretSource};

/// The default of `redis_prefix`.
pub(crate) const DEFAULT_REDIS_PREFIX: &str = "trypema";
/// The default of `trusted_proxies`.
pub(crate) const LOOPBACK_NETWORKS: &str = "127.0.0.0/8,::1";
/// The default memory budget for bodies and unread responses of all connections: four rule sets of the
/// largest size, or thousands of batches.
pub(crate) const DEFAULT_BUFFERED_BYTES: usize = 64 * 1024 * 1024;

/// The longest accepted duration. Nobody needs more, and adding more to the current time could overflow.
const MAX_TIME: Period = Period(Duration::from_secs(365 * 24 * 60 * 60));
/// An upper bound on the configurable number of connections.
const MAX_CONNECTIONS: usize = 1_000_000;
/// The smallest buffer size that hyper accepts.
const MIN_HEADER_BYTES: usize = 8 * 1024;
/// An upper bound on the configurable head and body sizes.
pub(crate) const MAX_BYTES: usize = 64 * 1024 * 1024;
/// An upper bound on the configurable batch size.
const MAX_BATCH: usize = 10_000;

table::settings! {
"Listening" {
    listen: SocketAddr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 8080), "ADDRESS:PORT":
        "Address for checks, forward-auth and health";
    admin_listen: AdminListen, default format_args!("{}, if that is free", AdminListen::DEFAULT), "ADDRESS:PORT":
        "Address for administration, metrics and health, or `off`";
    tls_certificate: PathBuf, "FILE":
        "TLS certificate chain (PEM); together with a key it enables HTTPS";
    tls_key: PathBuf, "FILE":
        "TLS private key (PEM)";
    admin_token: Secret, "TOKEN":
        "Token that allows changing rules and counters (`Authorization: Bearer …`), at least 16 characters; \
         generated and stored in the runtime directory if no token is set",
        or admin_token_file:
        "File of admin tokens, one per line, optionally after a name that history shows, as in `ann TOKEN`";
    reader_token: Secret, "TOKEN":
        "Token that only allows reading rules and counters",
        or reader_token_file:
        "File of reader tokens, one per line, optionally after a name";
    caller_token: Secret, "TOKEN":
        "Token that checks and reservations need (forward-auth does not), never that of an admin or a reader; if \
         not set, they need none",
        or caller_token_file:
        "File of caller tokens, one per line, optionally after a name";
    #[arg(value_delimiter = ',')]
    allowed_origins: Vec<String>, "ORIGIN,…":
        "Origins of web pages that may call the server, as in `https://app.example`; requests from all other pages \
         are refused";
}
"Rules" {
    rules: PathBuf, "FILE":
        "Rules file (YAML), reloaded when it changes and on SIGHUP; built-in demonstration rules if not set";
    database_url: Secret, "URL":
        "PostgreSQL database that stores the rules, instead of a file: postgres://user:password@host/database",
        or database_url_file:
        "File that holds the database URL; read again for every connection, so that the password can change";
    rules_poll: Period = Period(Duration::from_secs(30)), in ..=MAX_TIME, "TIME":
        "Interval at which the database is polled for new rules, in case a notification is lost";
    #[arg(value_delimiter = ',')]
    trusted_proxies: Vec<String>, default LOOPBACK_NETWORKS, "NETWORK,…":
        "Proxies whose X-Forwarded-* headers are trusted";
}
"Counters" {
    provider: Provider, default "redis if a Redis URL is set, else memory", "PROVIDER":
        "Provider of counters";
    redis_url: Secret, "URL":
        "URL of Redis: redis://…, rediss://…, redis+sentinel://…/service, redis+cluster://…",
        or redis_url_file:
        "File that holds the Redis URL";
    redis_prefix: String, default DEFAULT_REDIS_PREFIX, "TEXT":
        "Prefix of all key names in Redis";
    hash_secret: Secret, "SECRET":
        "Secret of attributes with `hash: hmac-sha256`, at least 32 characters, the same on all servers",
        or hash_secret_file:
        "File that holds the secret";
    previous_hash_secret: Secret, "SECRET":
        "The secret before this one, until all servers have been restarted with this one",
        or previous_hash_secret_file:
        "File that holds the previous secret";
    redis_deadline: Period = Period(Duration::from_millis(50)), in ..=MAX_TIME, "TIME":
        "Maximum time that a decision waits for Redis";
    on_store_failure: FailurePolicy = FailurePolicy::Error, "POLICY":
        "Policy while Redis is unreachable, for rules without their own";
    instances: u32, default "1, or more if hybrid has seen more", "NUMBER":
        "With `--on-store-failure local`: number of servers that share the limits; each enforces its share";
    sync_interval: Period = Period(Duration::from_secs(1)), in ..=MAX_TIME, "TIME":
        "Hybrid: interval between two lease requests for a key; shorter for windows below 140 s";
    max_keys: usize = 1_000_000, in 1.., "NUMBER":
        "Maximum number of keys in memory, per strategy";
}
"Bounds" {
    max_connections: usize = 10_000, in 1..=MAX_CONNECTIONS, "NUMBER":
        "Maximum number of connections; beyond it, the server evicts an idle or slow one for each new one";
    max_connections_per_peer: usize = 1_000, in 1..=MAX_CONNECTIONS, "NUMBER":
        "Maximum number of connections from one IPv4 address or one IPv6 /64, except trusted proxies";
    max_buffered_bytes: usize, default DEFAULT_BUFFERED_BYTES, "BYTES":
        "Maximum bytes of request bodies and unread responses, over all connections";
    max_header_bytes: usize = 32 * 1024, in MIN_HEADER_BYTES..=MAX_BYTES, "BYTES":
        "Maximum bytes of a request's head";
    max_body_bytes: usize = 1024 * 1024, in 1..=MAX_BYTES, "BYTES":
        "Maximum bytes of a request's body";
    max_batch: usize = 1_000, in 1..=MAX_BATCH, "NUMBER":
        "Maximum number of checks in one batch";
    header_timeout: Period = Period(Duration::from_secs(10)), in ..=MAX_TIME, "TIME":
        "Maximum time for a request's head to arrive";
    request_timeout: Period = Period(Duration::from_secs(10)), in ..=MAX_TIME, "TIME":
        "Maximum time for a request's body to arrive, and for its response to be read";
    idle_timeout: Period = Period(Duration::from_secs(75)), in ..=MAX_TIME, "TIME":
        "Maximum time that a connection may be idle between requests";
}
"Operation" {
    shutdown_delay: Period = Period(Duration::ZERO), in ..=MAX_TIME, "TIME":
        "Time after SIGTERM during which the server still accepts connections while /readyz returns 503";
    shutdown_deadline: Period = Period(Duration::from_secs(10)), in ..=MAX_TIME, "TIME":
        "Time after the shutdown delay for requests in flight to finish";
    log_format: LogFormat = LogFormat::Pretty, "FORMAT":
        "Format of logs, on standard error";
    log_level: LogLevel = LogLevel::Info, "LEVEL":
        "Log level; `debug` logs every denied or throttled request";
    log_denials: LogDenials = LogDenials::Off, "WHICH":
        "Denied requests to log at level `info`, with rule and key";
    otlp_endpoint: String, "URL":
        "OpenTelemetry collector (OTLP over HTTP, as in http://127.0.0.1:4318) for requests whose traceparent is \
         sampled";
}
}
