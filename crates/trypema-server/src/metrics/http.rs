//! Metrics of HTTP requests.

use std::time::Duration;

use super::histogram::Histogram;
use super::{Counter, Exposition, Families, Metric, MetricType, metrics};

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
    routes: [RouteMetrics; ROUTES.len()],
}

impl HttpMetrics {
    pub(crate) fn record_response(&self, route: RouteLabel, status: u16, time: Duration) {
        let metrics = &self.routes[route as usize];
        if let Some(count) = metrics.statuses.0.get(usize::from(status)) {
            count.add_one();
        }
        metrics.time.add(time);
    }

    pub(super) fn write(&self, text: &mut Exposition) {
        let labels = ROUTES.map(|(_, name)| [("route", name)]);
        RouteMetrics::write_all(text, labels.iter().map(|label| &label[..]).zip(&self.routes));
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
