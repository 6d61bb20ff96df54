//! What all front ends share: one engine, what is counted about it, and whether it is ready.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use trypema::clock::Clock;
use trypema::rules::{Engine, Explanation, Refunded, Request, RuleSet, Verdict};
use trypema::{Attempts, BlockScope, RateLimiter, TrypemaError};

use crate::config::Config;
use crate::metrics::{Exposition, Kind, Metrics, StoreMetrics};
use crate::mode::Mode;
use crate::provider::{self, Deciding, Parts, Provider};
use crate::rules::book::{self, Book, Origin};
use crate::rules::{Following, Start};
use crate::start_error::StartError;

/// Rules in force, and everything that is known about them.
#[derive(Debug)]
pub struct App {
    engine: Engine,
    limiter: Arc<RateLimiter>,
    provider: Provider,
    pub(crate) metrics: Metrics,
    is_draining: AtomicBool,
    /// What was wrong with the rules that were read last, if anything was.
    refused_rules: Mutex<Option<String>>,
    following: Following,
}

/// How the service is, for `/readyz`.
#[derive(Debug, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    provider: &'static str,
    rules: usize,
    /// Where the rules in force were read: `file`, `database`, or `cache` if the database could not be asked since.
    rules_from: &'static str,
    /// Their revision, if they are stored in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules_revision: Option<u64>,
    /// For how long it has not been known whether they are the ones that are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules_stale_seconds: Option<u64>,
    /// `connected`, or `unavailable` while calls to Redis are not even tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
    /// Whether the rules that were read last are invalid, so that older ones are in force.
    rules_refused: bool,
    /// What is wrong with them: only for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_rules: Option<String>,
}

impl Readiness {
    /// The same for everybody: without what rules say.
    pub(crate) fn without_details(self) -> Self {
        Self { refused_rules: None, ..self }
    }
}

impl App {
    /// Reads the rules and connects to what was chosen. With a `clock`, everything goes by it: for tests.
    ///
    /// # Errors
    ///
    /// What is wrong with the rules, or why Redis cannot be used.
    pub async fn new(config: &Config, clock: Option<Arc<dyn Clock>>) -> Result<Self, StartError> {
        let Start { rules, following, refused } = config.rules.open().await?;
        warn_of_too_many(&rules);
        let store = Arc::new(StoreMetrics::default());
        let metrics = Metrics::new(&rules, Arc::clone(&store));
        let deciding = provider::connect(config, rules, Parts { clock, observer: store }).await?;
        let Deciding { engine, limiter, provider } = deciding;
        let (is_draining, refused_rules) = (AtomicBool::new(false), Mutex::new(refused));
        Ok(Self { engine, limiter, provider, metrics, is_draining, refused_rules, following })
    }

    /// Asks the rules. Every front end comes through here.
    ///
    /// # Errors
    ///
    /// That the store could not be asked, or that the request is invalid.
    pub async fn ask(&self, mode: Mode, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let asked = match mode {
            Mode::Check => self.engine.check(request).await,
            Mode::Look => self.engine.look(request).await,
            Mode::Record => self.engine.record(request).await,
        };
        match &asked {
            Ok(verdict) if mode == Mode::Look => tell(verdict, request),
            Ok(verdict) => {
                self.metrics.rules.decided(verdict, mode);
                self.metrics.rules.passed_by(verdict, request);
                tell(verdict, request);
            }
            Err(error) => {
                self.metrics.rules.failed(&self.engine.rules(), request);
                tracing::debug!(%error, "not decided");
            }
        }
        asked
    }

    pub(crate) async fn explain(&self, request: &Request<'_>) -> Result<Explanation, TrypemaError> {
        self.engine.explain(request).await
    }

    pub(crate) async fn give_back(&self, request: &Request<'_>) -> Result<Vec<Refunded>, TrypemaError> {
        self.engine.give_back(request).await
    }

    pub(crate) async fn inspect(&self, key: &str) -> Result<Option<Verdict>, TrypemaError> {
        self.engine.inspect(key).await
    }

    pub(crate) async fn reset(&self, key: &str) -> Result<Option<bool>, TrypemaError> {
        self.engine.reset(key).await
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.engine.rules()
    }

    /// Where rules change.
    pub(crate) fn following(&self) -> &Following {
        &self.following
    }

    /// The rules that are stored, if they are in a database.
    pub(crate) fn book(&self) -> Option<&Arc<Book>> {
        match &self.following {
            Following::Book(book) => Some(book),
            Following::File(..) => None,
        }
    }

    /// Puts other rules in force, and returns the old ones.
    pub fn replace_rules(&self, rules: RuleSet) -> Arc<RuleSet> {
        warn_of_too_many(&rules);
        self.metrics.rules.replace(&self.engine.rules(), &rules);
        let old = self.engine.replace(rules);
        self.metrics.rules_loaded();
        *self.refused_rules() = None;
        old
    }

    pub(crate) fn rules_refused(&self, why: &dyn Display) {
        self.metrics.refused_reloads.add_one();
        *self.refused_rules() = Some(why.to_string());
    }

    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let refused_rules = self.refused_rules().clone();
        let book = self.book();
        Readiness {
            ready: !self.is_draining.load(Ordering::Relaxed),
            provider: self.provider.name(),
            rules: self.engine.rules().len(),
            rules_from: match book.map(|book| book.in_force().origin) {
                None => "file",
                Some(Origin::Database) => "database",
                Some(Origin::Cache) => "cache",
            },
            rules_revision: book.map(|book| book.in_force().version.revision),
            rules_stale_seconds: book.map(|book| book.stale().as_secs()),
            store: match self.provider {
                Provider::Memory => None,
                Provider::Redis | Provider::Hybrid => {
                    Some(if self.is_store_away() { "unavailable" } else { "connected" })
                }
            },
            rules_refused: refused_rules.is_some(),
            refused_rules,
        }
    }

    /// Whether calls to Redis are not even tried at the moment.
    pub(crate) fn is_store_away(&self) -> bool {
        self.limiter.redis().stats().open_breakers > 0
    }

    /// Work that goes on beside requests, if there is any: to be spawned.
    pub(crate) fn background(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        (self.provider == Provider::Hybrid).then(|| self.limiter.hybrid().keep_in_sync())
    }

    /// Gives back what is held: after the last request.
    pub(crate) async fn release(&self) {
        if self.provider == Provider::Hybrid {
            self.limiter.hybrid().release().await;
        }
    }

    /// All metrics, as Prometheus reads them.
    pub(crate) fn exposition(&self) -> String {
        let mut text = Exposition::default();
        self.metrics.write(&mut text);
        text.family("trypema_rules", Kind::Gauge, "Rules in force.");
        text.sample(&[], self.engine.rules().len());
        book::write(self.book().map(|book| &**book), &mut text);
        text.family("trypema_live_keys", Kind::Gauge, "Keys that are counted in this process.");
        text.sample(&[], self.limiter.local().len());
        let redis = self.limiter.redis().stats();
        text.family("trypema_breaker_open", Kind::Gauge, "Redis servers that are left alone for a moment.");
        text.sample(&[], redis.open_breakers);
        text.family("trypema_breaker_openings_total", Kind::Counter, "How often that has begun.");
        text.sample(&[], redis.breaker_openings);
        let hybrid = self.limiter.hybrid().stats();
        text.family("trypema_units_held", Kind::Gauge, "Leased units that are not spent yet.");
        text.sample(&[], hybrid.held_units);
        text.family("trypema_leases_asked_total", Kind::Counter, "Leases that were asked for.");
        text.sample(&[], hybrid.leases_asked);
        if let Some(instances) = hybrid.instances {
            text.family(
                "trypema_instances",
                Kind::Gauge,
                "Servers that share the limits, as far as is known.",
            );
            text.sample(&[], instances);
        }
        text.into_text()
    }

    fn refused_rules(&self) -> MutexGuard<'_, Option<String>> {
        self.refused_rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(verdict: &Verdict, request: &Request<'_>) {
    if tracing::enabled!(tracing::Level::DEBUG) && !verdict.is_allowed() {
        let rule = verdict.decided_by();
        tracing::debug!(
            rule = rule.map(|rule| rule.rule.id.as_str()),
            name = rule.map(|rule| rule.rule.display_name()),
            key = rule.map(|rule| rule.key),
            cost = request.cost(),
            retry_after = ?verdict.retry_after(),
            scope = rule.and_then(|rule| rule.block_scope()).map(BlockScope::name),
            short_count = rule.and_then(|rule| rule.decision.attempts()).map(Attempts::short_count),
            long_count = rule.and_then(|rule| rule.decision.attempts()).map(Attempts::long_count),
            missing_attribute = rule.and_then(|rule| rule.missing),
            "denied"
        );
    }
}

/// Warns of rules that may be too many for one request, before a request shows it.
fn warn_of_too_many(rules: &RuleSet) {
    let most = rules.most_applying();
    if most > RuleSet::MAX_APPLYING {
        tracing::warn!(
            most,
            max = RuleSet::MAX_APPLYING,
            "more rules can apply to one request than are asked: such requests end with an error \
             (`trypema rules validate` says how this is estimated)"
        );
    }
}
