//! Metrics of HTTP requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::histogram::Histogram;
use super::{Exposition, MetricType};

/// The `route` label of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteLabel {
    Check,
    ForwardAuth,
    Explain,
    Reserve,
    Settle,
    Release,
    Renew,
    Keys,
    Rules,
    Operation,
    Unknown,
}

const ROUTES: [(RouteLabel, &str); 11] = [
    (RouteLabel::Check, "check"),
    (RouteLabel::ForwardAuth, "forward_auth"),
    (RouteLabel::Explain, "explain"),
    (RouteLabel::Reserve, "reserve"),
    (RouteLabel::Settle, "settle"),
    (RouteLabel::Release, "release"),
    (RouteLabel::Renew, "renew"),
    (RouteLabel::Keys, "keys"),
    (RouteLabel::Rules, "rules"),
    (RouteLabel::Operation, "operation"),
    (RouteLabel::Unknown, "unknown"),
];

impl RouteLabel {
    pub(crate) fn name(self) -> &'static str {
        ROUTES[self as usize].1
    }
}

/// An upper bound of HTTP status codes.
const STATUSES: usize = 600;

/// The number and the duration of requests, by route and status.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    routes: [RouteMetrics; ROUTES.len()],
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
        Self { routes: std::array::from_fn(route) }
    }
}

impl HttpMetrics {
    pub(crate) fn record_response(&self, route: RouteLabel, status: u16, time: Duration) {
        let metrics = &self.routes[route as usize];
        if let Some(count) = metrics.statuses.get(usize::from(status)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        metrics.time.add(time);
    }

    pub(super) fn write(&self, text: &mut Exposition) {
        let routes = || ROUTES.iter().map(|(route, name)| (*name, &self.routes[*route as usize]));
        text.family(
            "trypema_http_requests_total",
            MetricType::Counter,
            "HTTP requests answered, by route and status.",
        );
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
            MetricType::Histogram,
            "Time from the head of a request to its response.",
        );
        routes().for_each(|(name, metrics)| metrics.time.write(text, &[("route", name)]));
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
