//! Metrics of HTTP requests.

use std::time::Duration;

use super::histogram::Histogram;
use super::{Counter, Exposition, Families, Metric, MetricType, metrics};

/// The values of the label `route`, which the table of routes uses. The last one is for requests without a route.
pub(crate) const ROUTE_LABELS: [&str; 11] = [
    "check",
    "forward_auth",
    "explain",
    "reserve",
    "settle",
    "release",
    "renew",
    "keys",
    "rules",
    "operation",
    "unknown",
];

/// An upper bound of HTTP status codes.
const STATUSES: usize = 600;

metrics! {
    /// The number and the duration of the requests of one route.
    RouteMetrics {
        "trypema_http_requests_total", "HTTP requests answered, by route and status." { statuses: StatusCounters }
        "trypema_http_request_duration_seconds", "Time from the head of a request to its response." { time: Histogram }
    }
}

/// The number of requests by status.
#[derive(Debug)]
pub(crate) struct StatusCounters(Box<[Counter]>);

impl Default for StatusCounters {
    fn default() -> Self {
        Self((0..STATUSES).map(|_| Counter::default()).collect())
    }
}

impl Metric for StatusCounters {
    const TYPE: MetricType = MetricType::Counter;

    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        for (status, count) in self.0.iter().enumerate().filter(|(_, count)| count.get() > 0) {
            text.sample(&[labels, &[("status", &status.to_string())]].concat(), count.get());
        }
    }
}

/// The number and the duration of requests, by route and status.
#[derive(Debug, Default)]
pub(crate) struct HttpMetrics {
    routes: [RouteMetrics; ROUTE_LABELS.len()],
}

impl HttpMetrics {
    pub(crate) fn record_response(&self, route: &str, status: u16, time: Duration) {
        let mut labelled = ROUTE_LABELS.iter().zip(&self.routes);
        let Some((_, metrics)) = labelled.find(|(label, _)| **label == route) else { return };
        if let Some(count) = metrics.statuses.0.get(usize::from(status)) {
            count.add_one();
        }
        metrics.time.add(time);
    }

    pub(super) fn write(&self, text: &mut Exposition) {
        let labels = ROUTE_LABELS.map(|name| [("route", name)]);
        RouteMetrics::write_all(text, labels.iter().map(|label| &label[..]).zip(&self.routes));
    }
}
