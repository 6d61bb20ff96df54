//! Requests and connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

use super::histogram::Histogram;
use super::{Counter, Exposition, Kind};

/// What a request was for, as far as metrics tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Check,
    ForwardAuth,
    Explain,
    Refund,
    Keys,
    Rules,
    Operation,
    Unknown,
}

const ROUTES: [(Route, &str); 8] = [
    (Route::Check, "check"),
    (Route::ForwardAuth, "forward_auth"),
    (Route::Explain, "explain"),
    (Route::Refund, "refund"),
    (Route::Keys, "keys"),
    (Route::Rules, "rules"),
    (Route::Operation, "operation"),
    (Route::Unknown, "unknown"),
];

impl Route {
    pub(crate) fn name(self) -> &'static str {
        ROUTES[self as usize].1
    }
}

/// Statuses are below this.
const STATUSES: usize = 600;

/// Requests by route and status, and how long they took.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    routes: [RouteMetrics; ROUTES.len()],
    /// Connections that are open.
    pub(crate) connections: AtomicU64,
    /// Those that were closed at once, because all others were busy.
    pub(crate) refused: Counter,
    /// Those that gave way to others.
    pub(crate) gave_way: Counter,
    /// Those that took too long.
    pub(crate) timed_out: Counter,
    /// Those that did not speak HTTP, or too much of it at once.
    pub(crate) malformed: Counter,
}

#[derive(Debug)]
struct RouteMetrics {
    statuses: Box<[AtomicU64]>,
    time: Histogram,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let route = |_| RouteMetrics {
            statuses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
            time: Histogram::default(),
        };
        Self {
            routes: std::array::from_fn(route),
            connections: AtomicU64::new(0),
            refused: Counter::default(),
            gave_way: Counter::default(),
            timed_out: Counter::default(),
            malformed: Counter::default(),
        }
    }
}

impl HttpMetrics {
    pub(crate) fn answered(&self, route: Route, status: StatusCode, time: Duration) {
        let metrics = &self.routes[route as usize];
        if let Some(count) = metrics.statuses.get(usize::from(status.as_u16())) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        metrics.time.add(time);
    }

    pub(super) fn write(&self, text: &mut Exposition) {
        let routes = || ROUTES.iter().map(|(route, name)| (*name, &self.routes[*route as usize]));
        text.family("trypema_http_requests_total", Kind::Counter, "Requests that were answered.");
        for (name, metrics) in routes() {
            for (status, count) in metrics.statuses.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    text.sample(&[("route", name), ("status", &status.to_string())], count);
                }
            }
        }
        text.family(
            "trypema_http_request_duration_seconds",
            Kind::Histogram,
            "Time from the head of a request to its answer.",
        );
        routes().for_each(|(name, metrics)| metrics.time.write(text, &[("route", name)]));
        text.family("trypema_connections", Kind::Gauge, "Connections that are open.");
        text.sample(&[], self.connections.load(Ordering::Relaxed));
        text.family(
            "trypema_connections_closed_early_total",
            Kind::Counter,
            "Connections that were closed by the service, and why: all others were busy, idle ones gave way, too slow, no HTTP.",
        );
        text.sample(&[("reason", "refused")], self.refused.get());
        text.sample(&[("reason", "gave_way")], self.gave_way.get());
        text.sample(&[("reason", "timed_out")], self.timed_out.get());
        text.sample(&[("reason", "malformed")], self.malformed.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_in_their_places() {
        assert!(ROUTES.iter().enumerate().all(|(index, (route, _))| *route as usize == index));
    }
}
