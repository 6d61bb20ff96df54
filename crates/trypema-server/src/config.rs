//! The validated configuration, with defaults applied.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use trypema::http::TrustedProxies;
use trypema::redis::{OnFailure, RedisKey};
use trypema::rules::Period;

use crate::allowed_origins::AllowedOrigins;
use crate::forward_auth::Profiles;
use crate::rules::{Address, CacheChoice, DatabaseChoice, RulesSource};
use crate::secret::Secret;
use crate::settings::{
    AdminListenSetting, InvalidConfig, InvalidSetting, LogDenials, ProviderSetting, Settings,
    StoreFailureSetting,
};
use crate::spans::Collector;
use crate::token_file::RuntimeDirectory;
use crate::tokens::{TokenRole, Tokens};

/// The configuration of the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address of the check listener.
    pub listen: SocketAddr,
    /// The address of the administration listener.
    pub admin_listen: AdminListen,
    /// The directory that stores a generated token. `None` until the caller sets it, because it comes from
    /// the environment and not from a setting.
    pub runtime_directory: Option<RuntimeDirectory>,
    /// The TLS files; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// The tokens of callers, readers and admins.
    pub tokens: Tokens,
    /// The web pages that may call the server.
    pub(crate) allowed_origins: AllowedOrigins,
    /// The source of the rules.
    pub rules: RulesSource,
    /// The proxies whose `X-Forwarded-*` headers are trusted.
    pub trusted_proxies: TrustedProxies,
    /// The forward-auth profiles.
    pub(crate) profiles: Profiles,
    /// The provider of counters.
    pub provider: ProviderChoice,
    /// The maximum number of keys in memory, per strategy.
    pub max_keys: usize,
    /// Bounds on connections and requests.
    pub limits: Limits,
    /// The time after SIGTERM in which the server still accepts connections.
    pub shutdown_delay: Duration,
    /// The time after `shutdown_delay` in which requests in flight may finish.
    pub shutdown_deadline: Duration,
    /// The denied requests that are logged at level `info`.
    pub log_denials: LogDenials,
    /// The OpenTelemetry collector.
    pub(crate) collector: Option<Collector>,
}

/// The address of the administration listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminListen {
    /// [`AdminListen::DEFAULT`]. If it cannot be bound, the server starts without administration.
    Default,
    /// This address. If it cannot be bound, the server does not start.
    At(SocketAddr),
    /// No administration.
    Off,
}

impl AdminListen {
    /// The default address.
    pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
}

/// The TLS files.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The provider of counters.
#[derive(Debug, Clone)]
pub enum ProviderChoice {
    /// Counters in this process.
    Memory,
    /// Counters in Redis.
    Redis(RedisChoice),
    /// Units leased from Redis; the duration is `sync_interval`.
    Hybrid(RedisChoice, Duration),
}

impl ProviderChoice {
    /// Returns the settings of Redis, if the provider uses it.
    pub(crate) fn redis(&self) -> Option<&RedisChoice> {
        match self {
            Self::Memory => None,
            Self::Redis(redis) | Self::Hybrid(redis, _) => Some(redis),
        }
    }
}

/// The settings of Redis.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RedisChoice {
    pub url: Secret,
    pub prefix: Option<RedisKey>,
    pub deadline: Duration,
    pub on_failure: OnFailure,
}

impl RedisChoice {
    /// Returns the value of `on_store_failure`, for logs.
    pub(crate) fn failure_policy(&self) -> &'static str {
        match self.on_failure {
            OnFailure::Allow => "allow",
            OnFailure::Deny => "deny",
            OnFailure::Local { .. } => "local",
            _ => "error",
        }
    }
}

/// Bounds on connections and requests.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Limits {
    pub connections: usize,
    pub connections_per_peer: usize,
    pub buffered_bytes: usize,
    pub header_bytes: usize,
    pub body_bytes: usize,
    pub batch: usize,
    pub header_timeout: Duration,
    pub request_timeout: Duration,
    pub idle_timeout: Duration,
}

/// The smallest buffer size that hyper accepts.
const MIN_HEADER_BYTES: usize = 8 * 1024;
/// An upper bound on the configurable head and body sizes.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The maximum size of a whole rule set, in bytes. It is also the maximum size of a rules file.
pub(crate) const MAX_RULESET_BYTES: usize = 16 * 1024 * 1024;
/// The default memory budget for bodies and unread responses of all connections: four rule sets of the
/// largest size, or thousands of batches.
const DEFAULT_BUFFERED_BYTES: usize = 64 * 1024 * 1024;

/// The error of a secret that is given both directly and as a file.
const TWICE: &str = "set either the value or its _file variant, not both";

/// The longest accepted duration. Nobody needs more, and adding more to the current time could overflow.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The shortest poll interval: more frequent polls would load the database.
const MIN_POLL: Duration = Duration::from_millis(100);

/// An upper bound on the configurable number of connections.
const MAX_CONNECTIONS: usize = 1_000_000;
/// An upper bound on the configurable batch size.
const MAX_BATCH: usize = 10_000;

impl Config {
    /// Validates settings and applies defaults.
    ///
    /// # Errors
    ///
    /// All settings that are invalid.
    pub fn new(settings: Settings) -> Result<Self, InvalidConfig> {
        let mut invalid = InvalidConfig::default();
        check_times(&settings, &mut invalid);
        let tls = invalid.take(tls(&settings));
        let tokens = tokens(&settings, &mut invalid);
        let allowed_origins = AllowedOrigins::new(&settings.allowed_origins);
        let allowed_origins =
            invalid.take(allowed_origins.map_err(|reason| InvalidSetting::new("allowed_origins", reason)));
        let rules = invalid.take(rules(&settings));
        let trusted_proxies = invalid.take(trusted_proxies(&settings.trusted_proxies));
        let profiles = settings.forward_auth.as_ref().map(Profiles::new).transpose();
        let profiles = invalid.take_all(profiles).map(Option::unwrap_or_default);
        let max_keys = invalid.take(at_least_one("max_keys", settings.max_keys.unwrap_or(1_000_000)));
        let limits = Limits::new(&settings, &mut invalid);
        let collector = invalid.take(collector(settings.otlp_endpoint.as_deref()));
        let provider = provider(&settings, &mut invalid);
        let config = || {
            Some(Self {
                listen: settings.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080))),
                admin_listen: match settings.admin_listen {
                    None => AdminListen::Default,
                    Some(AdminListenSetting::At(address)) => AdminListen::At(address),
                    Some(AdminListenSetting::Off) => AdminListen::Off,
                },
                runtime_directory: None,
                tls: tls?,
                tokens,
                allowed_origins: allowed_origins?,
                rules: rules?,
                trusted_proxies: trusted_proxies?,
                profiles: profiles?,
                max_keys: max_keys?,
                limits: limits?,
                shutdown_delay: time(settings.shutdown_delay, 0),
                shutdown_deadline: time(settings.shutdown_deadline, 10_000),
                log_denials: settings.log_denials.unwrap_or_default(),
                collector: collector?,
                provider: provider?,
            })
        };
        config().filter(|_| invalid.is_empty()).ok_or(invalid)
    }
}

impl Limits {
    fn new(settings: &Settings, invalid: &mut InvalidConfig) -> Option<Self> {
        let header_bytes = settings.max_header_bytes.unwrap_or(32 * 1024);
        let body_bytes = settings.max_body_bytes.unwrap_or(1024 * 1024);
        if !(MIN_HEADER_BYTES..=MAX_BYTES).contains(&header_bytes) {
            let reason = format!("need {MIN_HEADER_BYTES} to {MAX_BYTES} bytes");
            invalid.add(InvalidSetting::new("max_header_bytes", reason));
        }
        if !(1..=MAX_BYTES).contains(&body_bytes) {
            invalid.add(InvalidSetting::new("max_body_bytes", format!("need 1 to {MAX_BYTES} bytes")));
        }
        let max_connections = settings.max_connections.unwrap_or(10_000);
        let connections = invalid.take(within("max_connections", max_connections, MAX_CONNECTIONS));
        let per_peer = settings.max_connections_per_peer.unwrap_or(1_000);
        let per_peer = invalid.take(within("max_connections_per_peer", per_peer, MAX_CONNECTIONS));
        let buffered_bytes = buffered_bytes(settings.max_buffered_bytes, body_bytes.min(MAX_BYTES));
        let buffered_bytes = invalid.take(buffered_bytes);
        let batch = invalid.take(within("max_batch", settings.max_batch.unwrap_or(1_000), MAX_BATCH));
        Some(Self {
            connections: connections?,
            connections_per_peer: per_peer?,
            buffered_bytes: buffered_bytes?,
            header_bytes,
            body_bytes,
            batch: batch?,
            header_timeout: time(settings.header_timeout, 10_000),
            request_timeout: time(settings.request_timeout, 10_000),
            idle_timeout: time(settings.idle_timeout, 75_000),
        })
    }
}

fn invalid(setting: &'static str, reason: impl Into<String>) -> InvalidSetting {
    InvalidSetting::new(setting, reason)
}

/// Validates every duration, whether it is used or not.
fn check_times(settings: &Settings, problems: &mut InvalidConfig) {
    let times = [
        ("rules_poll", settings.rules_poll),
        ("redis_deadline", settings.redis_deadline),
        ("sync_interval", settings.sync_interval),
        ("header_timeout", settings.header_timeout),
        ("request_timeout", settings.request_timeout),
        ("idle_timeout", settings.idle_timeout),
        ("shutdown_delay", settings.shutdown_delay),
        ("shutdown_deadline", settings.shutdown_deadline),
    ];
    for (setting, _) in times.iter().filter(|(_, time)| time.is_some_and(|time| time.0 > MAX_TIME)) {
        problems.add(invalid(setting, format!("need at most {}", Period(MAX_TIME))));
    }
}

fn time(period: Option<Period>, default_ms: u64) -> Duration {
    period.map_or(Duration::from_millis(default_ms), |period| period.0)
}

fn within(setting: &'static str, number: usize, max: usize) -> Result<usize, InvalidSetting> {
    if (1..=max).contains(&number) { Ok(number) } else { Err(invalid(setting, format!("need 1 to {max}"))) }
}

fn at_least_one(setting: &'static str, number: usize) -> Result<usize, InvalidSetting> {
    if number == 0 { Err(invalid(setting, "need at least 1")) } else { Ok(number) }
}

/// Returns the memory budget. The largest body must fit into half of it; otherwise such a body could be
/// refused forever.
fn buffered_bytes(setting: Option<usize>, body_bytes: usize) -> Result<usize, InvalidSetting> {
    let min = 2 * MAX_RULESET_BYTES.max(body_bytes);
    let bytes = setting.unwrap_or_else(|| DEFAULT_BUFFERED_BYTES.max(min));
    if bytes < min {
        return Err(invalid(
            "max_buffered_bytes",
            format!("need at least {min} bytes, twice the largest body"),
        ));
    }
    Ok(bytes)
}

fn trusted_proxies(texts: &[String]) -> Result<TrustedProxies, InvalidSetting> {
    let loopback = ["127.0.0.0/8".to_owned(), "::1".to_owned()];
    let texts = if texts.is_empty() { &loopback[..] } else { texts };
    let parse = |text: &String| {
        text.trim().parse().map_err(|error| invalid("trusted_proxies", format!("`{text}`: {error}")))
    };
    Ok(TrustedProxies::new(texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?))
}

fn collector(endpoint: Option<&str>) -> Result<Option<Collector>, InvalidSetting> {
    let collector = endpoint.map(Collector::new).transpose();
    collector.map_err(|error| invalid("otlp_endpoint", error.to_string()))
}

fn tls(settings: &Settings) -> Result<Option<Tls>, InvalidSetting> {
    match (settings.tls_certificate.clone(), settings.tls_key.clone()) {
        (Some(certificate), Some(key)) => Ok(Some(Tls { certificate, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(invalid("tls_key", "is required with tls_certificate")),
        (None, Some(_)) => Err(invalid("tls_certificate", "is required with tls_key")),
    }
}

fn tokens(settings: &Settings, problems: &mut InvalidConfig) -> Tokens {
    let mut tokens = Tokens::default();
    let given = [
        ("admin_token", TokenRole::Admin, &settings.admin_token, &settings.admin_token_file),
        ("reader_token", TokenRole::Reader, &settings.reader_token, &settings.reader_token_file),
        ("caller_token", TokenRole::Caller, &settings.caller_token, &settings.caller_token_file),
    ];
    for (setting, role, given, file) in given {
        if let Some(text) = problems.take(secret(setting, given, file)).flatten() {
            let added = if given.is_some() { tokens.add(&text, role) } else { tokens.add_lines(&text, role) };
            problems.take(added.map_err(|error| invalid(setting, error.to_string())));
        }
    }
    tokens
}

fn rules(settings: &Settings) -> Result<RulesSource, InvalidSetting> {
    let address = match (&settings.database_url, &settings.database_url_file) {
        (Some(_), Some(_)) => return Err(invalid("database_url", TWICE)),
        (Some(url), None) => Some(Address::Given(url.clone())),
        (None, Some(file)) => Some(Address::InFile(file.clone())),
        (None, None) => None,
    };
    match (address, &settings.rules) {
        (Some(_), Some(_)) => Err(invalid("rules", "set either `rules` or `database_url`, not both")),
        (None, None) => Ok(RulesSource::BuiltIn),
        (None, Some(file)) => Ok(RulesSource::File(file.clone())),
        (Some(address), None) => {
            let redis = secret("redis_url", &settings.redis_url, &settings.redis_url_file)?;
            let prefix = redis_prefix(settings)?.map_or_else(|| "trypema".to_owned(), |key| key.to_string());
            let poll = time(settings.rules_poll, 30_000);
            if poll < MIN_POLL {
                return Err(invalid("rules_poll", format!("need at least {}", Period(MIN_POLL))));
            }
            Ok(RulesSource::Database(DatabaseChoice {
                address,
                poll,
                cache: redis.map(|url| CacheChoice { url, prefix }),
            }))
        }
    }
}

/// Returns a secret that is given directly or as a file.
fn secret(
    setting: &'static str,
    given: &Option<Secret>,
    file: &Option<PathBuf>,
) -> Result<Option<Secret>, InvalidSetting> {
    match (given, file) {
        (Some(_), Some(_)) => Err(invalid(setting, TWICE)),
        (given, None) => Ok(given.clone()),
        (None, Some(file)) => match Secret::read(file) {
            Ok(secret) => Ok(Some(secret)),
            Err(error) => Err(invalid(setting, format!("{}: {error}", file.display()))),
        },
    }
}

fn provider(settings: &Settings, problems: &mut InvalidConfig) -> Option<ProviderChoice> {
    let url = problems.take(secret("redis_url", &settings.redis_url, &settings.redis_url_file))?;
    let default = if url.is_some() { ProviderSetting::Redis } else { ProviderSetting::Memory };
    let provider = settings.provider.unwrap_or(default);
    if provider == ProviderSetting::Memory {
        return Some(ProviderChoice::Memory);
    }
    let missing = || invalid("redis_url", "is required by the providers redis and hybrid");
    let url = problems.take(url.ok_or_else(missing));
    let prefix = problems.take(redis_prefix(settings));
    let on_failure = problems.take(on_failure(settings.on_store_failure, settings.instances));
    let deadline = time(settings.redis_deadline, 50);
    let redis = RedisChoice { url: url?, prefix: prefix?, deadline, on_failure: on_failure? };
    Some(match provider {
        ProviderSetting::Hybrid => ProviderChoice::Hybrid(redis, time(settings.sync_interval, 1_000)),
        ProviderSetting::Redis | ProviderSetting::Memory => ProviderChoice::Redis(redis),
    })
}

/// Returns the prefix of all key names in Redis, if one is set. It may be any non-empty text.
fn redis_prefix(settings: &Settings) -> Result<Option<RedisKey>, InvalidSetting> {
    match settings.redis_prefix.as_deref() {
        Some("") => Err(invalid("redis_prefix", "must not be empty; omit it for the default `trypema`")),
        prefix => Ok(prefix.map(RedisKey::encode)),
    }
}

fn on_failure(
    setting: Option<StoreFailureSetting>,
    instances: Option<u32>,
) -> Result<OnFailure, InvalidSetting> {
    let instances = NonZeroU32::new(instances.unwrap_or(1));
    let instances = instances.ok_or_else(|| invalid("instances", "need at least 1"))?;
    Ok(match setting.unwrap_or(StoreFailureSetting::Error) {
        StoreFailureSetting::Error => OnFailure::Fail,
        StoreFailureSetting::Allow => OnFailure::Allow,
        StoreFailureSetting::Deny => OnFailure::Deny,
        StoreFailureSetting::Local => OnFailure::Local { instances },
    })
}
