//! The counters of the server, and their Prometheus text format.

mod connections;
mod exposition;
mod histogram;
mod http;
mod logins;
mod process;
mod reservations;
mod rules;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trypema::rules::RuleSet;

pub(crate) use connections::ConnectionMetrics;
pub(crate) use exposition::{CONTENT_TYPE, Exposition, MetricType};
pub(crate) use http::{HttpMetrics, RouteLabel};
pub(crate) use logins::LoginMetrics;
pub(crate) use reservations::ReservationMetrics;
pub(crate) use rules::{Comparisons, RuleMetrics};
pub(crate) use store::StoreMetrics;

use crate::clock;

/// A monotonic counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds one, and returns the previous value.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The metrics that the server counts itself. Values that the limiter knows are read from it when metrics
/// are requested.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) rules: RuleMetrics,
    pub(crate) store: Arc<StoreMetrics>,
    pub(crate) http: HttpMetrics,
    pub(crate) connections: Arc<ConnectionMetrics>,
    pub(crate) logins: Arc<LoginMetrics>,
    pub(crate) reloads: Counter,
    pub(crate) refused_reloads: Counter,
    pub(crate) dropped_spans: Arc<Counter>,
    loaded_at_s: AtomicU64,
    started_at_s: u64,
}

impl Metrics {
    pub(crate) fn new(rules: &RuleSet, store: Arc<StoreMetrics>) -> Self {
        let now_s = clock::since_epoch().as_secs();
        Self {
            rules: RuleMetrics::new(rules),
            store,
            http: HttpMetrics::default(),
            connections: Arc::default(),
            logins: Arc::default(),
            reloads: Counter::default(),
            refused_reloads: Counter::default(),
            dropped_spans: Arc::default(),
            loaded_at_s: AtomicU64::new(now_s),
            started_at_s: now_s,
        }
    }

    pub(crate) fn rules_loaded(&self) {
        self.reloads.add_one();
        self.loaded_at_s.store(clock::since_epoch().as_secs(), Ordering::Relaxed);
    }

    pub(crate) fn write(&self, text: &mut Exposition) {
        self.rules.write(text);
        self.store.write(text);
        text.family("trypema_rules_reloads_total", MetricType::Counter, "Reloads of rules, by result.");
        text.sample(&[("result", "ok")], self.reloads.get());
        text.sample(&[("result", "error")], self.refused_reloads.get());
        text.family(
            "trypema_rules_loaded_timestamp_seconds",
            MetricType::Gauge,
            "Unix time at which the rules in force were loaded.",
        );
        text.sample(&[], self.loaded_at_s.load(Ordering::Relaxed));
        self.http.write(text);
        self.connections.write(text);
        self.logins.write(text);
        text.family(
            "trypema_spans_dropped_total",
            MetricType::Counter,
            "Spans that could not be sent to the collector.",
        );
        text.sample(&[], self.dropped_spans.get());
        process::write(text, self.started_at_s);
    }
}
