//! The validated configuration, with defaults applied.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use trypema::http::TrustedProxies;
use trypema::redis::RedisKey;
use trypema::rules::Period;

use crate::allowed_origins::AllowedOrigins;
use crate::forward_auth::Profiles;
use crate::key_hashing::KeyHashing;
use crate::rules::{CacheChoice, DatabaseChoice, RulesSource};
use crate::secret::{Secret, SecretSource};
use crate::settings::forward_auth::ForwardAuthSettings;
use crate::settings::{
    AdminListen, DEFAULT_BUFFERED_BYTES, DEFAULT_REDIS_PREFIX, InvalidConfig, InvalidSetting,
    LOOPBACK_NETWORKS, MAX_BYTES, Provider, Settings, Values,
};
use crate::spans::Collector;
use crate::token_file::RuntimeDirectory;
use crate::tokens::{TokenRole, Tokens};

/// The configuration of the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The settings that need no more than a default and bounds.
    pub values: Values,
    /// The address of the administration listener; `None` for [`AdminListen::DEFAULT`].
    pub admin_listen: Option<AdminListen>,
    /// The directory that stores a generated token. `None` until the caller sets it, because it comes from
    /// the environment and not from a setting.
    pub runtime_directory: Option<RuntimeDirectory>,
    /// The TLS files; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// The tokens of callers, readers and admins.
    pub tokens: Tokens,
    /// Where they are from.
    pub(crate) token_sources: TokenSources,
    /// The web pages that may call the server.
    pub(crate) allowed_origins: AllowedOrigins,
    /// The source of the rules.
    pub rules: RulesSource,
    /// The proxies whose `X-Forwarded-*` headers are trusted.
    pub trusted_proxies: TrustedProxies,
    /// The forward-auth profiles.
    pub(crate) profiles: Profiles,
    /// The hashed attributes, if there are any.
    pub(crate) hashing: Option<KeyHashing>,
    /// The provider of counters.
    pub provider: Provider,
    /// The settings of Redis, if the provider uses it.
    pub redis: Option<RedisConfig>,
    /// The memory budget for bodies and unread responses of all connections, in bytes.
    pub buffered_bytes: usize,
    /// The files that hold secrets, each with its setting.
    pub(crate) secret_files: Vec<(&'static str, PathBuf)>,
    /// The OpenTelemetry collector.
    pub(crate) collector: Option<Collector>,
}

/// The TLS files.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The settings of Redis.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RedisConfig {
    pub url: Secret,
    pub prefix: Option<RedisKey>,
    pub instances: NonZeroU32,
}

/// The maximum size of a whole rule set, in bytes. It is also the maximum size of a rules file.
pub(crate) const MAX_RULESET_BYTES: usize = 16 * 1024 * 1024;
/// The minimum length of the secret of hashed attributes. A shorter one could be guessed by who sees a hash.
const MIN_HASH_SECRET: usize = 32;
/// The shortest poll interval: more frequent polls would load the database.
const MIN_POLL: Duration = Duration::from_millis(100);

impl Config {
    /// Validates settings and applies defaults.
    ///
    /// # Errors
    ///
    /// All settings that are invalid.
    pub fn new(settings: Settings) -> Result<Self, InvalidConfig> {
        let mut problems = InvalidConfig::default();
        let values = Values::of(&settings);
        values.check(&mut problems);
        let profiles = settings.forward_auth.as_ref().map(Profiles::new).transpose();
        let token_sources = TokenSources::of(&settings, &mut problems);
        // What stands in for an invalid value is not used: the problems are returned.
        let config = Self {
            admin_listen: settings.admin_listen,
            runtime_directory: None,
            tls: problems.take(tls(&settings)).flatten(),
            tokens: token_sources.read(&mut problems),
            token_sources,
            allowed_origins: problems.take(allowed_origins(&settings)).unwrap_or_default(),
            rules: problems.take(rules(&settings, &values)).unwrap_or(RulesSource::BuiltIn),
            trusted_proxies: problems.take(trusted_proxies(&settings)).unwrap_or_default(),
            profiles: problems.take_all(profiles).flatten().unwrap_or_default(),
            hashing: hashing(&settings, &mut problems),
            secret_files: settings.secret_files(),
            buffered_bytes: problems.take(buffered_bytes(&settings, &values)).unwrap_or_default(),
            collector: problems.take(collector(&settings)).flatten(),
            provider: provider(&settings),
            redis: redis(&settings, &mut problems),
            values,
        };
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

fn invalid(setting: &'static str, reason: impl Into<String>) -> InvalidSetting {
    InvalidSetting::new(setting, reason)
}

/// Returns the memory budget. The largest body must fit into half of it; otherwise such a body could be
/// refused forever.
fn buffered_bytes(settings: &Settings, values: &Values) -> Result<usize, InvalidSetting> {
    let min = 2 * MAX_RULESET_BYTES.max(values.max_body_bytes.min(MAX_BYTES));
    let bytes = settings.max_buffered_bytes.unwrap_or_else(|| DEFAULT_BUFFERED_BYTES.max(min));
    if bytes < min {
        let reason = format!("need at least {min} bytes, twice the largest body");
        return Err(invalid("max_buffered_bytes", reason));
    }
    Ok(bytes)
}

fn allowed_origins(settings: &Settings) -> Result<AllowedOrigins, InvalidSetting> {
    let origins = AllowedOrigins::new(settings.allowed_origins.as_deref().unwrap_or_default());
    origins.map_err(|reason| invalid("allowed_origins", reason))
}

fn trusted_proxies(settings: &Settings) -> Result<TrustedProxies, InvalidSetting> {
    let given = settings.trusted_proxies.iter().flatten().map(String::as_str);
    let is_given = given.clone().next().is_some();
    let loopback = LOOPBACK_NETWORKS.split(',').filter(|_| !is_given);
    let parse = |text: &str| {
        text.trim().parse().map_err(|error| invalid("trusted_proxies", format!("`{text}`: {error}")))
    };
    Ok(TrustedProxies::new(given.chain(loopback).map(parse).collect::<Result<Vec<_>, _>>()?))
}

fn collector(settings: &Settings) -> Result<Option<Collector>, InvalidSetting> {
    let collector = settings.otlp_endpoint.as_deref().map(Collector::new).transpose();
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

/// The settings that give tokens.
#[derive(Debug, Clone)]
pub(crate) struct TokenSources(Vec<(&'static str, TokenRole, SecretSource)>);

impl TokenSources {
    fn of(settings: &Settings, problems: &mut InvalidConfig) -> Self {
        let given = [
            ("admin_token", TokenRole::Admin, settings.admin_token()),
            ("reader_token", TokenRole::Reader, settings.reader_token()),
            ("caller_token", TokenRole::Caller, settings.caller_token()),
        ];
        let mut sources = Vec::new();
        for (setting, role, source) in given {
            sources.extend(problems.take(source).flatten().map(|source| (setting, role, source)));
        }
        Self(sources)
    }

    /// Whether some tokens are in files, which may change.
    pub(crate) fn have_files(&self) -> bool {
        self.0.iter().any(|(.., source)| matches!(source, SecretSource::InFile(_)))
    }

    /// Reads all tokens.
    pub(crate) fn read(&self, problems: &mut InvalidConfig) -> Tokens {
        let mut tokens = Tokens::default();
        for (setting, role, source) in &self.0 {
            let Some(text) = problems.take(source.read().map_err(|reason| invalid(setting, reason))) else {
                continue;
            };
            let added = match source {
                SecretSource::Given(_) => tokens.add(&text, *role),
                SecretSource::InFile(_) => tokens.add_lines(&text, *role),
            };
            problems.take(added.map_err(|error| invalid(setting, error.to_string())));
        }
        tokens
    }
}

/// Returns the hashed attributes and their secret, if a secret is set.
fn hashing(settings: &Settings, problems: &mut InvalidConfig) -> Option<KeyHashing> {
    let attributes = settings.forward_auth.as_ref().map(ForwardAuthSettings::hashed_attributes).transpose();
    let attributes = problems.take_all(attributes)?.unwrap_or_default();
    let mut secret_of = |setting, source: Result<Option<SecretSource>, InvalidSetting>| {
        let secret = problems.take(source)??.read();
        let secret = secret.and_then(|secret| match secret.reveal().chars().count() {
            MIN_HASH_SECRET.. => Ok(secret),
            _ => Err(format!("need at least {MIN_HASH_SECRET} characters, as `openssl rand -hex 32` prints")),
        });
        problems.take(secret.map_err(|reason| invalid(setting, reason)))
    };
    let secret = secret_of("hash_secret", settings.hash_secret());
    let previous = secret_of("previous_hash_secret", settings.previous_hash_secret());
    if secret.is_none() && (previous.is_some() || !attributes.is_empty()) && problems.is_empty() {
        let by = if attributes.is_empty() { "previous_hash_secret" } else { "`hash` of an attribute" };
        problems.add(invalid("hash_secret", format!("is required by {by}")));
    }
    Some(KeyHashing::new(secret?.reveal(), previous.as_ref().map(Secret::reveal), attributes))
}

fn rules(settings: &Settings, values: &Values) -> Result<RulesSource, InvalidSetting> {
    let address = match (settings.database_url()?, &settings.rules) {
        (Some(_), Some(_)) => {
            return Err(invalid("rules", "set either `rules` or `database_url`, not both"));
        }
        (None, None) => return Ok(RulesSource::BuiltIn),
        (None, Some(file)) => return Ok(RulesSource::File(file.clone())),
        (Some(address), None) => address,
    };
    let url = redis_url(settings)?;
    let prefix =
        redis_prefix(settings)?.map_or_else(|| DEFAULT_REDIS_PREFIX.to_owned(), |key| key.to_string());
    let Period(poll) = values.rules_poll;
    if poll < MIN_POLL {
        return Err(invalid("rules_poll", format!("need at least {}", Period(MIN_POLL))));
    }
    let cache = url.map(|url| CacheChoice { url, prefix });
    Ok(RulesSource::Database(DatabaseChoice { address, poll, cache }))
}

/// Returns the provider: the given one, or Redis if its address is given.
fn provider(settings: &Settings) -> Provider {
    let has_url = settings.redis_url.is_some() || settings.redis_url_file.is_some();
    settings.provider.unwrap_or(if has_url { Provider::Redis } else { Provider::Memory })
}

fn redis_url(settings: &Settings) -> Result<Option<Secret>, InvalidSetting> {
    let url = settings.redis_url()?.map(|source| source.read()).transpose();
    url.map_err(|reason| invalid("redis_url", reason))
}

/// Returns the settings of Redis, if the provider uses it.
fn redis(settings: &Settings, problems: &mut InvalidConfig) -> Option<RedisConfig> {
    let url = problems.take(redis_url(settings))?;
    if provider(settings) == Provider::Memory {
        return None;
    }
    let missing = || invalid("redis_url", "is required by the providers redis and hybrid");
    let url = problems.take(url.ok_or_else(missing));
    let prefix = problems.take(redis_prefix(settings));
    let instances = NonZeroU32::new(settings.instances.unwrap_or(1));
    let instances = problems.take(instances.ok_or_else(|| invalid("instances", "need at least 1")));
    Some(RedisConfig { url: url?, prefix: prefix?, instances: instances? })
}

/// Returns the prefix of all key names in Redis, if one is set. It may be any non-empty text.
fn redis_prefix(settings: &Settings) -> Result<Option<RedisKey>, InvalidSetting> {
    match settings.redis_prefix.as_deref() {
        Some("") => Err(invalid("redis_prefix", "must not be empty; omit it for the default `trypema`")),
        prefix => Ok(prefix.map(RedisKey::encode)),
    }
}
