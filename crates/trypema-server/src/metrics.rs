//! The counters of the server, and their Prometheus text format.

mod connections;
mod exposition;
mod family;
mod histogram;
mod http;
pub(crate) mod limiter;
mod logins;
mod process;
mod reservations;
mod rules;
mod store;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trypema::rules::RuleSet;

pub(crate) use self::http::{HttpMetrics, RouteLabel};
pub(crate) use connections::ConnectionMetrics;
pub(crate) use exposition::{CONTENT_TYPE, Exposition, MetricType};
pub(crate) use family::{Families, Metric, metrics};
pub(crate) use logins::LoginMetrics;
pub(crate) use reservations::ReservationMetrics;
pub(crate) use rules::RuleMetrics;
pub(crate) use store::StoreMetrics;
pub(crate) use tls::TlsMetrics;

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
    pub(crate) reloads: ReloadMetrics,
    pub(crate) spans: SpanMetrics,
    pub(crate) tls: TlsMetrics,
    started_at_s: u64,
}

metrics! {
    /// Reloads of rules.
    ReloadMetrics {
        "trypema_rules_reloads_total", "Reloads of rules, by result.", by "result" { ok: Counter, error: Counter }
        "trypema_rules_loaded_timestamp_seconds", "Unix time at which the rules in force were loaded." {
            loaded_at_s: AtomicU64
        }
    }

    /// Spans of traces.
    SpanMetrics {
        "trypema_spans_dropped_total", "Spans that could not be sent to the collector." { dropped: Arc<Counter> }
    }
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
            reloads: ReloadMetrics { loaded_at_s: now_s.into(), ..ReloadMetrics::default() },
            spans: SpanMetrics::default(),
            tls: TlsMetrics::default(),
            started_at_s: now_s,
        }
    }

    pub(crate) fn rules_loaded(&self) {
        self.reloads.ok.add_one();
        self.reloads.loaded_at_s.store(clock::since_epoch().as_secs(), Ordering::Relaxed);
    }

    pub(crate) fn write(&self, text: &mut Exposition) {
        self.rules.write(text);
        self.store.calls.write(text);
        self.reloads.write(text);
        self.http.write(text);
        self.connections.write(text);
        self.logins.write(text);
        self.spans.write(text);
        self.tls.write(text);
        process::write(text, self.started_at_s);
    }
}
