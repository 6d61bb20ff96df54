//! All settings. Flags, environment variables and the configuration file use the same names.

pub(crate) mod forward_auth;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;
use trypema::http::HeaderStyle;
use trypema::rules::{Document, InvalidRules, Parsed, Period};

use self::forward_auth::ForwardAuthSettings;
use crate::secret::Secret;

/// The settings of `trypema serve`. Each is a flag (`--redis-url`), a variable (`TRYPEMA_REDIS_URL`) and a
/// key of the configuration file (`redis_url`). A flag takes precedence over a variable, and a variable
/// over the file.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Address for checks, forward-auth and health [default: 127.0.0.1:8080]
    #[arg(long, env = "TRYPEMA_LISTEN", value_name = "ADDRESS:PORT", help_heading = "Listening")]
    pub listen: Option<SocketAddr>,
    /// Address for administration, metrics and health, or `off` [default: 127.0.0.1:8081, if that is free]
    #[arg(long, env = "TRYPEMA_ADMIN_LISTEN", value_name = "ADDRESS:PORT", help_heading = "Listening")]
    pub admin_listen: Option<AdminListenSetting>,
    /// TLS certificate chain (PEM); together with a key it enables HTTPS
    #[arg(long, env = "TRYPEMA_TLS_CERTIFICATE", value_name = "FILE", help_heading = "Listening")]
    pub tls_certificate: Option<PathBuf>,
    /// TLS private key (PEM)
    #[arg(long, env = "TRYPEMA_TLS_KEY", value_name = "FILE", help_heading = "Listening")]
    pub tls_key: Option<PathBuf>,
    /// Token that allows changing rules and counters (`Authorization: Bearer …`), at least 16 characters;
    /// generated and stored in the runtime directory if no token is set
    #[arg(
        long,
        env = "TRYPEMA_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Listening"
    )]
    pub admin_token: Option<Secret>,
    /// File of admin tokens, one per line, optionally after a name that history shows, as in `ann TOKEN`
    #[arg(long, env = "TRYPEMA_ADMIN_TOKEN_FILE", value_name = "FILE", help_heading = "Listening")]
    pub admin_token_file: Option<PathBuf>,
    /// Token that only allows reading rules and counters
    #[arg(
        long,
        env = "TRYPEMA_READER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Listening"
    )]
    pub reader_token: Option<Secret>,
    /// File of reader tokens, one per line, optionally after a name
    #[arg(long, env = "TRYPEMA_READER_TOKEN_FILE", value_name = "FILE", help_heading = "Listening")]
    pub reader_token_file: Option<PathBuf>,
    /// Token that checks and reservations need (forward-auth does not), never that of an admin or a reader; if
    /// not set, they need none
    #[arg(
        long,
        env = "TRYPEMA_CALLER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Listening"
    )]
    pub caller_token: Option<Secret>,
    /// File of caller tokens, one per line, optionally after a name
    #[arg(long, env = "TRYPEMA_CALLER_TOKEN_FILE", value_name = "FILE", help_heading = "Listening")]
    pub caller_token_file: Option<PathBuf>,
    /// Origins of web pages that may call the server, as in `https://app.example`; requests from all other
    /// pages are refused
    #[arg(
        long,
        env = "TRYPEMA_ALLOWED_ORIGINS",
        value_name = "ORIGIN,…",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    pub allowed_origins: Vec<String>,

    /// Rules file (YAML), reloaded when it changes and on SIGHUP; built-in demonstration rules if not set
    #[arg(long, env = "TRYPEMA_RULES", value_name = "FILE", help_heading = "Rules")]
    pub rules: Option<PathBuf>,
    /// PostgreSQL database that stores the rules, instead of a file: postgres://user:password@host/database
    #[arg(
        long,
        env = "TRYPEMA_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Rules"
    )]
    pub database_url: Option<Secret>,
    /// File that holds the database URL; read again for every connection, so that the password can change
    #[arg(long, env = "TRYPEMA_DATABASE_URL_FILE", value_name = "FILE", help_heading = "Rules")]
    pub database_url_file: Option<PathBuf>,
    /// Interval at which the database is polled for new rules, in case a notification is lost [default:
    /// 30s]
    #[arg(long, env = "TRYPEMA_RULES_POLL", value_name = "TIME", help_heading = "Rules")]
    pub rules_poll: Option<Period>,
    /// Proxies whose X-Forwarded-* headers are trusted [default: 127.0.0.0/8,::1]
    #[arg(
        long,
        env = "TRYPEMA_TRUSTED_PROXIES",
        value_name = "NETWORK,…",
        value_delimiter = ',',
        help_heading = "Rules"
    )]
    pub trusted_proxies: Vec<String>,
    /// Forward-auth profiles; only in the configuration file
    #[arg(skip)]
    pub(crate) forward_auth: Option<ForwardAuthSettings>,

    /// Provider of counters [default: redis if a Redis URL is set, else memory]
    #[arg(long, env = "TRYPEMA_PROVIDER", value_name = "PROVIDER", help_heading = "Counters")]
    pub provider: Option<ProviderSetting>,
    /// URL of Redis: redis://…, rediss://…, redis+sentinel://…/service, redis+cluster://…
    #[arg(
        long,
        env = "TRYPEMA_REDIS_URL",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Counters"
    )]
    pub redis_url: Option<Secret>,
    /// File that holds the Redis URL
    #[arg(long, env = "TRYPEMA_REDIS_URL_FILE", value_name = "FILE", help_heading = "Counters")]
    pub redis_url_file: Option<PathBuf>,
    /// Prefix of all key names in Redis [default: trypema]
    #[arg(long, env = "TRYPEMA_REDIS_PREFIX", value_name = "TEXT", help_heading = "Counters")]
    pub redis_prefix: Option<String>,
    /// Maximum time that a decision waits for Redis [default: 50ms]
    #[arg(long, env = "TRYPEMA_REDIS_DEADLINE", value_name = "TIME", help_heading = "Counters")]
    pub redis_deadline: Option<Period>,
    /// Policy while Redis is unreachable, for rules without their own [default: error]
    #[arg(long, env = "TRYPEMA_ON_STORE_FAILURE", value_name = "POLICY", help_heading = "Counters")]
    pub on_store_failure: Option<StoreFailureSetting>,
    /// With `--on-store-failure local`: number of servers that share the limits; each enforces its share
    /// [default: 1, or more if hybrid has seen more]
    #[arg(long, env = "TRYPEMA_INSTANCES", value_name = "NUMBER", help_heading = "Counters")]
    pub instances: Option<u32>,
    /// Hybrid: interval between two lease requests for a key; shorter for windows below 140 s [default: 1s]
    #[arg(long, env = "TRYPEMA_SYNC_INTERVAL", value_name = "TIME", help_heading = "Counters")]
    pub sync_interval: Option<Period>,
    /// Maximum number of keys in memory, per strategy [default: 1000000]
    #[arg(long, env = "TRYPEMA_MAX_KEYS", value_name = "NUMBER", help_heading = "Counters")]
    pub max_keys: Option<usize>,

    /// Maximum number of connections; beyond it, the server evicts an idle or slow one for each new one
    /// [default: 10000]
    #[arg(long, env = "TRYPEMA_MAX_CONNECTIONS", value_name = "NUMBER", help_heading = "Bounds")]
    pub max_connections: Option<usize>,
    /// Maximum number of connections from one IPv4 address or one IPv6 /64, except trusted proxies
    /// [default: 1000]
    #[arg(long, env = "TRYPEMA_MAX_CONNECTIONS_PER_PEER", value_name = "NUMBER", help_heading = "Bounds")]
    pub max_connections_per_peer: Option<usize>,
    /// Maximum bytes of request bodies and unread responses, over all connections [default: 67108864]
    #[arg(long, env = "TRYPEMA_MAX_BUFFERED_BYTES", value_name = "BYTES", help_heading = "Bounds")]
    pub max_buffered_bytes: Option<usize>,
    /// Maximum bytes of a request's head [default: 32768]
    #[arg(long, env = "TRYPEMA_MAX_HEADER_BYTES", value_name = "BYTES", help_heading = "Bounds")]
    pub max_header_bytes: Option<usize>,
    /// Maximum bytes of a request's body [default: 1048576]
    #[arg(long, env = "TRYPEMA_MAX_BODY_BYTES", value_name = "BYTES", help_heading = "Bounds")]
    pub max_body_bytes: Option<usize>,
    /// Maximum number of checks in one batch [default: 1000]
    #[arg(long, env = "TRYPEMA_MAX_BATCH", value_name = "NUMBER", help_heading = "Bounds")]
    pub max_batch: Option<usize>,
    /// Maximum time for a request's head to arrive [default: 10s]
    #[arg(long, env = "TRYPEMA_HEADER_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub header_timeout: Option<Period>,
    /// Maximum time for a request's body to arrive, and for its response to be read [default: 10s]
    #[arg(long, env = "TRYPEMA_REQUEST_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub request_timeout: Option<Period>,
    /// Maximum time that a connection may be idle between requests [default: 75s]
    #[arg(long, env = "TRYPEMA_IDLE_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub idle_timeout: Option<Period>,

    /// Time after SIGTERM during which the server still accepts connections while /readyz returns 503
    /// [default: 0s]
    #[arg(long, env = "TRYPEMA_SHUTDOWN_DELAY", value_name = "TIME", help_heading = "Operation")]
    pub shutdown_delay: Option<Period>,
    /// Time after the shutdown delay for requests in flight to finish [default: 10s]
    #[arg(long, env = "TRYPEMA_SHUTDOWN_DEADLINE", value_name = "TIME", help_heading = "Operation")]
    pub shutdown_deadline: Option<Period>,
    /// Format of logs, on standard error [default: pretty]
    #[arg(long, env = "TRYPEMA_LOG_FORMAT", value_name = "FORMAT", help_heading = "Operation")]
    pub log_format: Option<LogFormat>,
    /// Log level; `debug` logs every denied or throttled request [default: info]
    #[arg(long, env = "TRYPEMA_LOG_LEVEL", value_name = "LEVEL", help_heading = "Operation")]
    pub log_level: Option<LogLevel>,
    /// Denied requests to log at level `info`, with rule and key [default: off]
    #[arg(long, env = "TRYPEMA_LOG_DENIALS", value_name = "WHICH", help_heading = "Operation")]
    pub log_denials: Option<LogDenials>,
    /// OpenTelemetry collector (OTLP over HTTP, as in http://127.0.0.1:4318) for requests whose traceparent
    /// is sampled
    #[arg(long, env = "TRYPEMA_OTLP_ENDPOINT", value_name = "URL", help_heading = "Operation")]
    pub otlp_endpoint: Option<String>,
}

/// The error of an invalid configuration, with all invalid settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InvalidConfig {
    problems: Vec<InvalidSetting>,
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The name of the setting, or the path to a field of `forward_auth`.
    pub setting: Cow<'static, str>,
    /// The reason why it is invalid.
    pub reason: String,
    /// The place where it is given, if that is known.
    pub origin: Option<SettingOrigin>,
}

/// The place where a setting is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// A line of the configuration file.
    File {
        /// The file.
        file: String,
        /// The line, if the problem has one.
        line: Option<u64>,
    },
    /// A flag such as `--max-keys`, or an environment variable such as `TRYPEMA_MAX_KEYS`.
    Argument(String),
}

impl InvalidSetting {
    pub(crate) fn new(setting: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self { setting: setting.into(), reason: reason.into(), origin: None }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(SettingOrigin::File { file, line: Some(line) }) => write!(f, "{file}:{line}: ")?,
            Some(SettingOrigin::File { file, line: None }) => write!(f, "{file}: ")?,
            Some(SettingOrigin::Argument(_)) | None => {}
        }
        if !self.setting.is_empty() {
            write!(f, "{}: ", self.setting)?;
        }
        f.write_str(&self.reason)?;
        match &self.origin {
            Some(SettingOrigin::Argument(name)) => write!(f, " (given as {name})"),
            _ => Ok(()),
        }
    }
}

impl InvalidConfig {
    /// Returns the invalid settings.
    pub fn problems(&self) -> &[InvalidSetting] {
        &self.problems
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem, unless the same setting, a part of it or the whole of it has one already: the second
    /// may be a consequence of the first.
    pub(crate) fn add(&mut self, problem: InvalidSetting) {
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let is_same = |known: &InvalidSetting| {
            is_within(&known.setting, &problem.setting) || is_within(&problem.setting, &known.setting)
        };
        if problem.setting.is_empty() || !self.problems.iter().any(is_same) {
            self.problems.push(problem);
        }
    }

    /// Adds the problem of a failed check. Returns the value of one that succeeded.
    pub(crate) fn take<T>(&mut self, checked: Result<T, InvalidSetting>) -> Option<T> {
        checked.map_err(|problem| self.add(problem)).ok()
    }

    /// Adds the problems of several checks. Returns the value if there are none.
    pub(crate) fn take_all<T>(&mut self, checked: Result<T, Self>) -> Option<T> {
        checked.map_err(|others| others.problems.into_iter().for_each(|problem| self.add(problem))).ok()
    }

    /// Sets the places of the problems that have none.
    pub(crate) fn locate(&mut self, origin_of: impl Fn(&str) -> Option<SettingOrigin>) {
        for problem in self.problems.iter_mut().filter(|problem| problem.origin.is_none()) {
            problem.origin = origin_of(&problem.setting);
        }
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for InvalidConfig {}

/// The settings of a configuration file, and its problems.
#[derive(Debug, Default)]
pub(crate) struct SettingsFile {
    /// The settings, without those that could not be read.
    pub(crate) settings: Settings,
    pub(crate) invalid: InvalidConfig,
    name: String,
    text: String,
}

impl SettingsFile {
    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Self {
        let mut file = Self { name: path.display().to_string(), ..Self::default() };
        match std::fs::read_to_string(path) {
            Ok(text) => file.text = text,
            Err(error) => file.refuse(InvalidSetting::new("", error.to_string()), None),
        }
        let text = std::mem::take(&mut file.text);
        let problems = match Document::from_yaml(&text) {
            Ok(document) if document.is_empty() => None,
            Ok(document) => {
                let Parsed { value, invalid, .. } = document.read();
                file.settings = value.unwrap_or_default();
                invalid
            }
            Err(invalid) => Some(invalid),
        };
        for problem in problems.iter().flat_map(InvalidRules::problems) {
            let setting = InvalidSetting::new(problem.field().to_string(), problem.reason());
            file.refuse(setting, problem.line());
        }
        if let Some(more) = problems.map(|invalid| invalid.more()).filter(|more| *more > 0) {
            file.refuse(InvalidSetting::new("", format!("and {more} more problems")), None);
        }
        file.text = text;
        file
    }

    fn refuse(&mut self, setting: InvalidSetting, line: Option<u64>) {
        let origin = Some(SettingOrigin::File { file: self.name.clone(), line });
        self.invalid.add(InvalidSetting { origin, ..setting });
    }

    /// Returns the place of a setting in the file, if the file has it.
    pub(crate) fn origin_of(&self, setting: &str) -> Option<SettingOrigin> {
        let document = Document::from_yaml(&self.text).ok()?;
        let line = document.line_of(setting.split('.'));
        line.map(|_| SettingOrigin::File { file: self.name.clone(), line })
    }
}

/// The address of the administration listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AdminListenSetting {
    /// This address.
    At(SocketAddr),
    /// No administration listener.
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

/// The provider of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderSetting {
    /// In this process
    Memory,
    /// In Redis, shared by all servers
    Redis,
    /// Leased from Redis, spent locally
    Hybrid,
}

/// The decision while Redis is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreFailureSetting {
    /// Answer 503
    Error,
    /// Allow the request
    Allow,
    /// Deny the request
    Deny,
    /// Count in this process, with this server's share of the limit
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
    /// No headers
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

/// The format of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text for people
    Pretty,
    /// One JSON object per line
    Json,
}

/// The log level.
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

/// The denied requests that are logged at level `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogDenials {
    /// None
    #[default]
    Off,
    /// Up to ten a second, and the number of those left out
    Sampled,
    /// All
    All,
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid. The error names the line and the setting of each problem.
    pub fn read(path: &Path) -> Result<Self, InvalidConfig> {
        let SettingsFile { settings, invalid, .. } = SettingsFile::read(path);
        if invalid.is_empty() { Ok(settings) } else { Err(invalid) }
    }

    /// Returns these settings; where one is not set, that of `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        let given = |ours: Vec<String>, theirs| if ours.is_empty() { theirs } else { ours };
        // A secret can be given directly or as a file. Either form here takes precedence over both forms of
        // `others`.
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
        let (caller_token, caller_token_file) = secret(
            (self.caller_token, self.caller_token_file),
            (others.caller_token, others.caller_token_file),
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
            caller_token,
            caller_token_file,
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
            log_denials: self.log_denials.or(others.log_denials),
            otlp_endpoint: self.otlp_endpoint.or(others.otlp_endpoint),
        }
    }
}
