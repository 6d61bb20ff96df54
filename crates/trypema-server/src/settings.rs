//! Everything that can be set, wherever it is set: flags, variables and the configuration file have the same names.

pub(crate) mod forward_auth;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;
use thiserror::Error;
use trypema::http::HeaderStyle;
use trypema::rules::Period;

use self::forward_auth::ForwardAuthSettings;
use crate::secret::Secret;

/// What `trypema serve` can be told. Each is a flag (`--redis-url`), a variable (`TRYPEMA_REDIS_URL`) and a key of the
/// configuration file (`redis_url`); the first of these that is given counts.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where to serve checks, forward-auth and health [default: 127.0.0.1:8080]
    #[arg(long, env = "TRYPEMA_LISTEN", value_name = "ADDRESS:PORT", help_heading = "Listening")]
    pub listen: Option<SocketAddr>,
    /// Where to serve administration, metrics and health, or `off` [default: 127.0.0.1:8081, if that is free]
    #[arg(long, env = "TRYPEMA_ADMIN_LISTEN", value_name = "ADDRESS:PORT", help_heading = "Listening")]
    pub admin_listen: Option<AdminListenSetting>,
    /// Certificate chain in PEM: with a key, the service speaks HTTPS
    #[arg(long, env = "TRYPEMA_TLS_CERTIFICATE", value_name = "FILE", help_heading = "Listening")]
    pub tls_certificate: Option<PathBuf>,
    /// Private key in PEM
    #[arg(long, env = "TRYPEMA_TLS_KEY", value_name = "FILE", help_heading = "Listening")]
    pub tls_key: Option<PathBuf>,
    /// Token of those who may change rules and counters (`Authorization: Bearer …`), at least 16 characters; generated and kept in the runtime directory if no token is set
    #[arg(
        long,
        env = "TRYPEMA_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Listening"
    )]
    pub admin_token: Option<Secret>,
    /// The same, in a file: one a line, with or without a name before it, as in `ann TOKEN`, which history tells
    #[arg(long, env = "TRYPEMA_ADMIN_TOKEN_FILE", value_name = "FILE", help_heading = "Listening")]
    pub admin_token_file: Option<PathBuf>,
    /// Token of those who may only look
    #[arg(
        long,
        env = "TRYPEMA_READER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Listening"
    )]
    pub reader_token: Option<Secret>,
    /// The same, in a file: one a line, with or without a name before it
    #[arg(long, env = "TRYPEMA_READER_TOKEN_FILE", value_name = "FILE", help_heading = "Listening")]
    pub reader_token_file: Option<PathBuf>,
    /// Origins of web pages that may call the service, as in `https://app.example`; requests from all other pages are refused
    #[arg(
        long,
        env = "TRYPEMA_ALLOWED_ORIGINS",
        value_name = "ORIGIN,…",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    pub allowed_origins: Vec<String>,

    /// File of rules (YAML), read again when it changes and on SIGHUP; built-in demonstration rules if not given
    #[arg(long, env = "TRYPEMA_RULES", value_name = "FILE", help_heading = "Rules")]
    pub rules: Option<PathBuf>,
    /// PostgreSQL that has the rules, in place of a file: postgres://user:password@host/database
    #[arg(
        long,
        env = "TRYPEMA_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Rules"
    )]
    pub database_url: Option<Secret>,
    /// The same, in a file, which is read again for every connection, as passwords change
    #[arg(long, env = "TRYPEMA_DATABASE_URL_FILE", value_name = "FILE", help_heading = "Rules")]
    pub database_url_file: Option<PathBuf>,
    /// How often the database is asked for new rules, should no announcement arrive [default: 30s]
    #[arg(long, env = "TRYPEMA_RULES_POLL", value_name = "TIME", help_heading = "Rules")]
    pub rules_poll: Option<Period>,
    /// Proxies whose X-Forwarded-* headers are believed [default: 127.0.0.0/8,::1]
    #[arg(
        long,
        env = "TRYPEMA_TRUSTED_PROXIES",
        value_name = "NETWORK,…",
        value_delimiter = ',',
        help_heading = "Rules"
    )]
    pub trusted_proxies: Vec<String>,
    /// Profiles of forward-auth: only in the configuration file
    #[arg(skip)]
    pub(crate) forward_auth: Option<ForwardAuthSettings>,

    /// Where counters live [default: redis if there is a Redis URL, else memory]
    #[arg(long, env = "TRYPEMA_PROVIDER", value_name = "PROVIDER", help_heading = "Counters")]
    pub provider: Option<ProviderSetting>,
    /// Redis: redis://…, rediss://…, redis+sentinel://…/service, redis+cluster://…
    #[arg(
        long,
        env = "TRYPEMA_REDIS_URL",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Counters"
    )]
    pub redis_url: Option<Secret>,
    /// The same, in a file
    #[arg(long, env = "TRYPEMA_REDIS_URL_FILE", value_name = "FILE", help_heading = "Counters")]
    pub redis_url_file: Option<PathBuf>,
    /// What the names of all keys in Redis start with [default: trypema]
    #[arg(long, env = "TRYPEMA_REDIS_PREFIX", value_name = "TEXT", help_heading = "Counters")]
    pub redis_prefix: Option<String>,
    /// How long a decision waits for Redis at most [default: 50ms]
    #[arg(long, env = "TRYPEMA_REDIS_DEADLINE", value_name = "TIME", help_heading = "Counters")]
    pub redis_deadline: Option<Period>,
    /// What it means that Redis cannot be asked, for rules that do not say [default: error]
    #[arg(long, env = "TRYPEMA_ON_STORE_FAILURE", value_name = "ANSWER", help_heading = "Counters")]
    pub on_store_failure: Option<StoreFailureSetting>,
    /// With `--on-store-failure local`: how many servers share the limits; each then gets its part [default: 1, or more if hybrid has seen more]
    #[arg(long, env = "TRYPEMA_INSTANCES", value_name = "NUMBER", help_heading = "Counters")]
    pub instances: Option<u32>,
    /// Hybrid: how often leases are asked for at most [default: 1s]
    #[arg(long, env = "TRYPEMA_SYNC_INTERVAL", value_name = "TIME", help_heading = "Counters")]
    pub sync_interval: Option<Period>,
    /// Keys that are kept in memory, per strategy [default: 1000000]
    #[arg(long, env = "TRYPEMA_MAX_KEYS", value_name = "NUMBER", help_heading = "Counters")]
    pub max_keys: Option<usize>,

    /// Connections at a time; beyond them the longest idle one gives way [default: 10000]
    #[arg(long, env = "TRYPEMA_MAX_CONNECTIONS", value_name = "NUMBER", help_heading = "Bounds")]
    pub max_connections: Option<usize>,
    /// Connections at a time of one IPv4 address or one IPv6 /64, unless it is a trusted proxy [default: 1000]
    #[arg(long, env = "TRYPEMA_MAX_CONNECTIONS_PER_PEER", value_name = "NUMBER", help_heading = "Bounds")]
    pub max_connections_per_peer: Option<usize>,
    /// Bytes of request bodies and unread answers, over all connections [default: 67108864]
    #[arg(long, env = "TRYPEMA_MAX_BUFFERED_BYTES", value_name = "BYTES", help_heading = "Bounds")]
    pub max_buffered_bytes: Option<usize>,
    /// Bytes of a request's head [default: 32768]
    #[arg(long, env = "TRYPEMA_MAX_HEADER_BYTES", value_name = "BYTES", help_heading = "Bounds")]
    pub max_header_bytes: Option<usize>,
    /// Bytes of a request's body [default: 1048576]
    #[arg(long, env = "TRYPEMA_MAX_BODY_BYTES", value_name = "BYTES", help_heading = "Bounds")]
    pub max_body_bytes: Option<usize>,
    /// Checks in one batch [default: 1000]
    #[arg(long, env = "TRYPEMA_MAX_BATCH", value_name = "NUMBER", help_heading = "Bounds")]
    pub max_batch: Option<usize>,
    /// How long a request's head may take to arrive [default: 10s]
    #[arg(long, env = "TRYPEMA_HEADER_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub header_timeout: Option<Period>,
    /// How long the body of a request may take to arrive [default: 10s]
    #[arg(long, env = "TRYPEMA_REQUEST_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub request_timeout: Option<Period>,
    /// How long a connection may be silent between requests [default: 75s]
    #[arg(long, env = "TRYPEMA_IDLE_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub idle_timeout: Option<Period>,

    /// After SIGTERM: how long to go on accepting while /readyz says no [default: 0s]
    #[arg(long, env = "TRYPEMA_SHUTDOWN_DELAY", value_name = "TIME", help_heading = "Operation")]
    pub shutdown_delay: Option<Period>,
    /// After that: how long what is under way may take [default: 10s]
    #[arg(long, env = "TRYPEMA_SHUTDOWN_DEADLINE", value_name = "TIME", help_heading = "Operation")]
    pub shutdown_deadline: Option<Period>,
    /// How logs are written, to standard error [default: pretty]
    #[arg(long, env = "TRYPEMA_LOG_FORMAT", value_name = "FORMAT", help_heading = "Operation")]
    pub log_format: Option<LogFormat>,
    /// What is logged; `debug` has every denial [default: info]
    #[arg(long, env = "TRYPEMA_LOG_LEVEL", value_name = "LEVEL", help_heading = "Operation")]
    pub log_level: Option<LogLevel>,
    /// OpenTelemetry collector (OTLP over HTTP, as in http://127.0.0.1:4318) for requests whose traceparent is sampled
    #[arg(long, env = "TRYPEMA_OTLP_ENDPOINT", value_name = "URL", help_heading = "Operation")]
    pub otlp_endpoint: Option<String>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{setting}: {reason}")]
pub struct InvalidConfig {
    /// Its name.
    pub setting: Cow<'static, str>,
    /// What is wrong with it.
    pub reason: String,
}

impl InvalidConfig {
    pub(crate) fn new(setting: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self { setting: setting.into(), reason: reason.into() }
    }
}

/// Where administration is served, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AdminListenSetting {
    /// At an address.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl FromStr for AdminListenSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| "need ADDRESS:PORT, as in 127.0.0.1:8081, or `off`".to_owned())
    }
}

impl TryFrom<String> for AdminListenSetting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Where counters live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderSetting {
    /// In this process
    Memory,
    /// In Redis, shared by all servers
    Redis,
    /// Leased from Redis, decided here
    Hybrid,
}

/// What it means that the store cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreFailureSetting {
    /// The request gets 503
    Error,
    /// The rule lets it pass
    Allow,
    /// The rule denies it
    Deny,
    /// The rule is counted here, at its part of the limit
    Local,
}

/// Headers that report the remaining units to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderSetting {
    /// RateLimit and RateLimit-Policy (IETF draft 10)
    Standard,
    /// X-RateLimit-Limit, -Remaining and -Reset
    #[serde(rename = "x-ratelimit")]
    XRateLimit,
    /// None at all
    None,
}

impl From<HeaderSetting> for HeaderStyle {
    fn from(setting: HeaderSetting) -> Self {
        match setting {
            HeaderSetting::Standard => Self::Standard,
            HeaderSetting::XRateLimit => Self::XRateLimit,
            HeaderSetting::None => Self::None,
        }
    }
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people
    Pretty,
    /// One JSON object a line
    Json,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// That it cannot be read, or what is wrong with it and in which line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        // Without the lines around it: one of them may be a secret.
        serde_saphyr::from_str(&text).map_err(|error| failed(error.without_snippet()))
    }

    /// These settings, and where they say nothing, the others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        let given = |ours: Vec<String>, theirs| if ours.is_empty() { theirs } else { ours };
        // A secret can be given in two ways: one here counts before either there.
        let secret = |ours: (Option<Secret>, Option<PathBuf>), theirs| match ours {
            (None, None) => theirs,
            ours => ours,
        };
        let (admin_token, admin_token_file) =
            secret((self.admin_token, self.admin_token_file), (others.admin_token, others.admin_token_file));
        let (reader_token, reader_token_file) = secret(
            (self.reader_token, self.reader_token_file),
            (others.reader_token, others.reader_token_file),
        );
        let (database_url, database_url_file) = secret(
            (self.database_url, self.database_url_file),
            (others.database_url, others.database_url_file),
        );
        let (redis_url, redis_url_file) =
            secret((self.redis_url, self.redis_url_file), (others.redis_url, others.redis_url_file));
        Self {
            listen: self.listen.or(others.listen),
            admin_listen: self.admin_listen.or(others.admin_listen),
            tls_certificate: self.tls_certificate.or(others.tls_certificate),
            tls_key: self.tls_key.or(others.tls_key),
            admin_token,
            admin_token_file,
            reader_token,
            reader_token_file,
            allowed_origins: given(self.allowed_origins, others.allowed_origins),
            rules: self.rules.or(others.rules),
            database_url,
            database_url_file,
            rules_poll: self.rules_poll.or(others.rules_poll),
            trusted_proxies: given(self.trusted_proxies, others.trusted_proxies),
            forward_auth: self.forward_auth.or(others.forward_auth),
            provider: self.provider.or(others.provider),
            redis_url,
            redis_url_file,
            redis_prefix: self.redis_prefix.or(others.redis_prefix),
            redis_deadline: self.redis_deadline.or(others.redis_deadline),
            on_store_failure: self.on_store_failure.or(others.on_store_failure),
            instances: self.instances.or(others.instances),
            sync_interval: self.sync_interval.or(others.sync_interval),
            max_keys: self.max_keys.or(others.max_keys),
            max_connections: self.max_connections.or(others.max_connections),
            max_connections_per_peer: self.max_connections_per_peer.or(others.max_connections_per_peer),
            max_buffered_bytes: self.max_buffered_bytes.or(others.max_buffered_bytes),
            max_header_bytes: self.max_header_bytes.or(others.max_header_bytes),
            max_body_bytes: self.max_body_bytes.or(others.max_body_bytes),
            max_batch: self.max_batch.or(others.max_batch),
            header_timeout: self.header_timeout.or(others.header_timeout),
            request_timeout: self.request_timeout.or(others.request_timeout),
            idle_timeout: self.idle_timeout.or(others.idle_timeout),
            shutdown_delay: self.shutdown_delay.or(others.shutdown_delay),
            shutdown_deadline: self.shutdown_deadline.or(others.shutdown_deadline),
            log_format: self.log_format.or(others.log_format),
            log_level: self.log_level.or(others.log_level),
            otlp_endpoint: self.otlp_endpoint.or(others.otlp_endpoint),
        }
    }
}
