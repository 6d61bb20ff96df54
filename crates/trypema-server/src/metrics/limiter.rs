//! Metrics that the limiter and the engine know.

use trypema::RateLimiter;
use trypema::rules::Engine;

use super::{Exposition, MetricType};

pub(crate) fn write(text: &mut Exposition, limiter: &RateLimiter, engine: &Engine) {
    text.gauge("trypema_rules", "Rules in force.", engine.rules().len());
    text.gauge("trypema_live_keys", "Keys held in the memory of this process.", limiter.local().len());
    let redis = limiter.redis().stats();
    text.gauge("trypema_breaker_open", "Redis servers whose circuit breaker is open.", redis.open_breakers);
    let openings = "Times that a circuit breaker has opened.";
    text.counter("trypema_breaker_openings_total", openings, redis.breaker_openings);
    let hybrid = limiter.hybrid().stats();
    text.gauge("trypema_units_held", "Leased units that are not spent yet.", hybrid.held_units);
    text.counter("trypema_leases_asked_total", "Lease requests sent to Redis.", hybrid.leases_asked);
    if let Some(instances) = hybrid.instances {
        text.gauge("trypema_instances", "Live instances that share the limits.", instances);
    }
    write_backlog(text, engine);
}

/// Writes the numbers of counters at which the engine has or had something to do in Redis later.
fn write_backlog(text: &mut Exposition, engine: &Engine) {
    let counts = engine.backlog();
    text.gauge(
        "trypema_undo_pending",
        "Counters at which a reservation is to be undone, because its answer was lost.",
        counts.to_undo,
    );
    text.family(
        "trypema_undo_total",
        MetricType::Counter,
        "Counters at which a reservation whose answer was lost was undone, or given up, so that it stays counted.",
    );
    text.sample(&[("result", "undone")], counts.undone);
    text.sample(&[("result", "given_up")], counts.given_up);
    text.gauge(
        "trypema_kept_reservations",
        "Counters at which this server keeps a reservation that it made while Redis was unreachable.",
        counts.kept,
    );
    text.counter(
        "trypema_moved_reservations_total",
        "Counters at which such a reservation was brought to Redis.",
        counts.moved,
    );
}
