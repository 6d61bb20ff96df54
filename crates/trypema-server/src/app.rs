//! The state that all front ends share: the engine, its metrics, and whether the server is ready.

mod permissions;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use trypema::RateLimiter;
use trypema::clock::Clock;
use trypema::rules::{Engine, HashedAttributes, RuleSet};

use self::permissions::Permissions;
use crate::background_worker::BackgroundWorkers;
use crate::config::Config;
use crate::denial_log::DenialLog;
use crate::metrics::{Exposition, Metrics, ReservationMetrics, StoreMetrics, limiter};
use crate::provider::{self, EngineAndLimiter, LimiterDependencies};
use crate::rules::store::{self, RuleStore, RulesOrigin};
use crate::rules::{LoadedRules, WatchedSource};
use crate::settings::Provider;
use crate::start_error::StartError;

/// The rules in force, the limiter behind them, and their metrics.
#[derive(Debug)]
pub struct App {
    engine: Arc<Engine>,
    limiter: Arc<RateLimiter>,
    provider: Provider,
    pub(crate) metrics: Metrics,
    reservations: Arc<ReservationMetrics>,
    pub(crate) denial_log: DenialLog,
    is_draining: AtomicBool,
    /// The error of the rule set that was read last, if it was invalid.
    refused_rules: Mutex<Option<String>>,
    watched_source: WatchedSource,
    workers: Arc<BackgroundWorkers>,
    permissions: Permissions,
    hashed: Option<Arc<HashedAttributes>>,
}

/// The response of `/readyz`.
#[derive(Debug, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    pub(crate) provider: &'static str,
    pub(crate) rules: usize,
    /// The origin of the rules in force: `file`, `database`, or `cache` if the database has been
    /// unreachable since they were loaded.
    pub(crate) rules_from: &'static str,
    /// The revision of the rules in force, if they are stored in a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rules_revision: Option<u64>,
    /// The time since the server last confirmed that the rules in force are the stored ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules_stale_seconds: Option<u64>,
    /// `connected`, or `unavailable` while a circuit breaker is open, so that calls to Redis fail without
    /// being sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
    /// Whether the rule set that was read last is invalid, so that an older one stays in force.
    rules_refused: bool,
    /// The error of that rule set. Only shown to administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_rules: Option<String>,
    /// What an operator should repair, although the server works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
    /// The permissions that the Redis user lacks, as ACL rules. Only shown to administrators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_permissions: Vec<String>,
}

/// A warning of `/readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Warning {
    /// The Redis user lacks permissions, so Redis refuses calls.
    MissingPermissions,
    /// The rule cache in Redis could not be written at the last attempt.
    RuleCacheFailing,
    /// The TLS files could not be used when they were read last, so an older certificate is in force.
    CertificateRefused,
}

impl Readiness {
    /// Removes the error of an invalid rule set and the missing permissions, for callers without a token.
    pub(crate) fn without_details(self) -> Self {
        Self { refused_rules: None, missing_permissions: Vec::new(), ..self }
    }
}

impl App {
    /// Reads the rules and connects to the configured store. Tests pass a `clock`, which then replaces the
    /// system's clock.
    ///
    /// # Errors
    ///
    /// An error of the rules, or the reason why Redis cannot be used: a wrong login, or permissions that its
    /// user lacks. If Redis is unreachable, that is no error.
    pub async fn new(config: &Config, clock: Option<Arc<dyn Clock>>) -> Result<Self, StartError> {
        let workers = Arc::new(BackgroundWorkers::default());
        let LoadedRules { rules, watched_source, refused } = config.rules.open(&workers).await?;
        let hashed = config.hashing.as_ref().map(|hashing| Arc::clone(&hashing.hashed));
        let rules = with_hashed(rules, hashed.as_ref());
        warn_if_too_many(&rules);
        let store = Arc::new(StoreMetrics::default());
        let metrics = Metrics::new(&rules, Arc::clone(&store));
        let reservations = Arc::new(ReservationMetrics::new(clock.clone()));
        let dependencies = LimiterDependencies { clock, observer: store, reservations: reservations.clone() };
        let connected = provider::connect(config, rules, dependencies).await?;
        let EngineAndLimiter { engine, limiter, provider, is_connected } = connected;
        let (is_draining, refused_rules) = (AtomicBool::new(false), Mutex::new(refused));
        let denial_log = DenialLog::new(config.values.log_denials);
        let app = Self {
            engine,
            limiter,
            provider,
            metrics,
            reservations,
            denial_log,
            is_draining,
            refused_rules,
            watched_source,
            workers,
            permissions: Permissions::default(),
            hashed,
        };
        app.require_permissions(is_connected).await?;
        Ok(app)
    }

    /// Returns the engine, of which only [`Service`](crate::service::Service) asks for decisions.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.engine.rules()
    }

    /// Returns the threads for long work.
    pub(crate) fn workers(&self) -> &BackgroundWorkers {
        &self.workers
    }

    /// Returns the source of the rules, which the rule watcher polls.
    pub(crate) fn watched_source(&self) -> &WatchedSource {
        &self.watched_source
    }

    /// Returns the database that stores the rules, or `None` if they are in a file.
    pub(crate) fn rule_store(&self) -> Option<&Arc<RuleStore>> {
        match &self.watched_source {
            WatchedSource::Database(rule_store) => Some(rule_store),
            WatchedSource::File(..) => None,
        }
    }

    /// Returns the same rules, which count hashes of the attributes for which the settings say so. Before they are
    /// compared with the rules in force, which do so, too.
    pub(crate) fn with_hashed(&self, rules: RuleSet) -> RuleSet {
        with_hashed(rules, self.hashed.as_ref())
    }

    /// Puts `rules` in force, and returns the previous ones.
    pub fn replace_rules(&self, rules: RuleSet) -> Arc<RuleSet> {
        let rules = self.with_hashed(rules);
        warn_if_too_many(&rules);
        self.metrics.rules.replace(&self.engine.rules(), &rules);
        let old = self.engine.replace(rules);
        self.metrics.rules_loaded();
        *self.refused_rules() = None;
        old
    }

    pub(crate) fn rules_refused(&self, why: &dyn Display) {
        self.metrics.reloads.error.add_one();
        *self.refused_rules() = Some(why.to_string());
    }

    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether the server is about to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let refused_rules = self.refused_rules().clone();
        let rule_store = self.rule_store();
        Readiness {
            ready: !self.is_draining(),
            provider: self.provider.name(),
            rules: self.engine.rules().len(),
            rules_from: match rule_store.map(|rule_store| rule_store.in_force().origin) {
                None => "file",
                Some(RulesOrigin::Database) => "database",
                Some(RulesOrigin::Cache) => "cache",
            },
            rules_revision: rule_store.map(|rule_store| rule_store.in_force().version.revision),
            rules_stale_seconds: rule_store.map(|rule_store| rule_store.staleness().as_secs()),
            store: match self.provider {
                Provider::Memory => None,
                Provider::Redis | Provider::Hybrid => {
                    Some(if self.is_store_unreachable() { "unavailable" } else { "connected" })
                }
            },
            rules_refused: refused_rules.is_some(),
            refused_rules,
            warnings: self.warnings(),
            missing_permissions: self.missing_permissions().iter().map(ToString::to_string).collect(),
        }
    }

    /// Whether a circuit breaker is open, so that calls to Redis fail without being sent.
    pub(crate) fn is_store_unreachable(&self) -> bool {
        self.limiter.redis().stats().open_breakers > 0
    }

    /// Returns the background work of the provider, which the caller has to spawn, or `None` if there is
    /// none.
    pub(crate) fn background(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        (self.provider == Provider::Hybrid).then(|| self.limiter.hybrid().keep_in_sync())
    }

    /// Returns the number of leased units that are not spent.
    pub(crate) fn held_units(&self) -> u64 {
        self.limiter.hybrid().stats().held_units
    }

    /// Waits until reservations are released whose requests were cancelled while Redis decided them.
    pub(crate) async fn wait_for_settlements(&self) {
        self.engine.wait_for_settlements().await;
    }

    /// Returns leased units to Redis. The server calls this after the last request.
    pub(crate) async fn release(&self) {
        if self.provider == Provider::Hybrid {
            self.limiter.hybrid().release().await;
        }
    }

    /// Returns all metrics in the Prometheus text format.
    pub(crate) fn exposition(&self) -> String {
        let mut text = Exposition::default();
        self.metrics.write(&mut text);
        self.reservations.write(&mut text, &self.engine.rules());
        limiter::write(&mut text, &self.limiter, &self.engine);
        store::write(self.rule_store().map(|rule_store| &**rule_store), &mut text);
        let help = "Permissions that the Redis user lacks, by the last probe.";
        text.gauge("trypema_missing_permissions", help, self.missing_permissions().len());
        text.into_text()
    }

    fn refused_rules(&self) -> MutexGuard<'_, Option<String>> {
        self.refused_rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_hashed(rules: RuleSet, hashed: Option<&Arc<HashedAttributes>>) -> RuleSet {
    match hashed {
        Some(hashed) => rules.with_hashed_attributes(hashed),
        None => rules,
    }
}

/// Warns if more rules can apply to one attribute set than the engine accepts for a request, before such a request fails.
fn warn_if_too_many(rules: &RuleSet) {
    let most = rules.applying_upper_bound();
    if most > RuleSet::MAX_APPLYING {
        tracing::warn!(
            "rules: up to {most} rules can apply to one attribute set, the maximum for a request is {}; requests to which more rules apply fail \
             (`trypema rules validate` explains the estimate)",
            RuleSet::MAX_APPLYING
        );
    }
}
