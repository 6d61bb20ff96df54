//! A candidate next to the live rule: its decisions, and its lack of effect on requests.

mod applying;
mod everywhere;
mod overriding;
mod twin;

use std::sync::Arc;

use trypema::clock::ManualClock;
use trypema::rules::{Engine, Verdict};
use trypema_testkit::blocking::{connect, limiter};
use trypema_testkit::redis::Server;

use super::rules;

/// Formats a verdict as `denied next -+`: the outcome, then for each candidate its id, the live decision and
/// its own.
fn told(verdict: &Verdict) -> String {
    let sign = |is_allowed: bool| if is_allowed { '+' } else { '-' };
    let mut text = if verdict.is_allowed() { "allowed" } else { "denied" }.to_owned();
    for compared in verdict.comparisons() {
        assert_eq!(compared.candidate.candidate_for.as_deref(), Some(compared.rule.id.as_str()));
        let signs = [compared.is_live_allowed, compared.is_candidate_allowed].map(sign);
        text.push_str(&format!(" {} {}{}", compared.candidate.id, signs[0], signs[1]));
    }
    text
}

/// Calls `play` with an engine of these rules on every provider, with the provider's name and clock.
pub(super) fn on_every_provider(yaml: &str, mut play: impl FnMut(&str, &Arc<Engine>, &ManualClock)) {
    let clock = Arc::new(ManualClock::default());
    let local = trypema::RateLimiter::builder().clock(clock.clone()).build().unwrap();
    play("local", &Arc::new(Engine::local(Arc::new(local), rules(yaml))), &clock);
    let server = Server::start().unwrap();
    let connection = connect(&server.url());
    for (name, engine) in [("redis", Engine::redis as fn(_, _) -> Engine), ("hybrid", Engine::hybrid)] {
        let clock = Arc::new(ManualClock::default());
        let rl = limiter(&connection, name, &clock).build().unwrap();
        play(name, &Arc::new(engine(Arc::new(rl), Arc::new(rules(yaml)))), &clock);
    }
}
