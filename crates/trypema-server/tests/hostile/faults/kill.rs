//! Redis is killed twenty times under load.

use std::time::Duration;

use trypema_testkit::redis::{Server, wait_until};

use super::load::{Counts, Load};
use super::policy::{FLAGS, Kind, LIMIT, LOCAL_SHARE, Policy, RULES};
use crate::harness::Service;
use crate::process::is_sound;
use crate::timing::Stopwatch;

const KILLS: usize = 20;
/// The deadline for Redis. A killed server refuses at once. A reply that is late only because the machine does
/// other work would waste units, with leases many of them.
const DEADLINE: &str = "1s";
/// That deadline, with an allowance for a machine that does other work. `cargo xtask soak faults` measures these
/// times.
pub(super) const IN_TIME: Duration = Duration::from_secs(1 + 2);
/// Two seconds, with such an allowance.
pub(super) const RECOVERY: Duration = Duration::from_secs(2 + 8);
/// The minimum number of admitted units per limit. A kill wastes units whose reply was in flight. With
/// leases, the lost reply may have been a lease of any size.
const LEAST: u64 = LIMIT * 9 / 10;
const LEAST_BELOW_LEASES: u64 = 1;
/// The number of responses per policy that prove a new state: more than were in flight when it began.
pub(super) const SOME: u64 = 20;

#[test]
fn redis_is_killed_twenty_times() {
    killed("redis", LEAST);
}

#[test]
fn redis_is_killed_twenty_times_below_leases() {
    killed("hybrid", LEAST_BELOW_LEASES);
}

fn killed(provider: &str, least: u64) {
    // Units of answered requests must survive: Redis writes to disk before it sends a reply.
    let redis = Server::builder().set("appendonly", "yes").set("appendfsync", "always").start().unwrap();
    let url = redis.url();
    let flags = ["--provider", provider, "--redis-url", &url, "--redis-deadline", DEADLINE];
    let flags = [&flags, &FLAGS[..]].concat();
    let service = Service::with_rules(RULES, &flags);
    let load = Load::start(&service);
    let (mut slowest_recovery, mut slowest) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..KILLS {
        load.wait("units of new keys", |_, now, policy| now.of(policy, Kind::Allowed) >= SOME);
        redis.kill_9().unwrap();
        load.wait("every policy to answer without redis", |before, now, policy| {
            now.substitutes(policy) >= before.substitutes(policy) + SOME
        });
        is_ready_without(&service);
        redis.restart().unwrap();
        let watch = Stopwatch::start();
        load.wait("every policy to answer with redis", |before, now, policy| {
            now.real(policy) >= before.real(policy) + SOME
        });
        slowest_recovery = slowest_recovery.max(watch.elapsed());
        slowest = slowest.max(load.p99());
        load.wait("every limit to be reached", |_, now, policy| now.of(policy, Kind::Denied) > 0);
        load.next_round();
    }
    let rounds = load.stop();
    println!("{provider}: recovered in {slowest_recovery:?} at most, p99 of a round at most {slowest:?}");
    assert!(slowest_recovery <= RECOVERY, "served again after {slowest_recovery:?}");
    assert!(slowest <= IN_TIME, "p99 of a round is {slowest:?}");
    let witness = Witness {
        service: Service::with_rules(RULES, &["--redis-url", &url, "--redis-deadline", "20s"]),
        least,
    };
    rounds.iter().enumerate().for_each(|(round, counts)| witness.confirms(round, counts));
    tells_of_the_kills(&service);
    is_sound(&service);
}

/// Asserts that the server stays ready without Redis, and reports that the store is missing.
fn is_ready_without(service: &Service) {
    wait_until("the service to name its store", || {
        let ready = service.get("/readyz");
        assert_eq!((ready.status, ready.json()["ready"].as_bool()), (200, Some(true)));
        ready.json()["store"] == "unavailable"
    })
    .unwrap();
}

/// Another server, without leases and without memory of earlier requests.
struct Witness {
    service: Service,
    least: u64,
}

impl Witness {
    /// Asserts that no limit was exceeded, and that every admitted unit is counted.
    fn confirms(&self, round: usize, counts: &Counts) {
        let allowed = |policy| counts.of(policy, Kind::Allowed);
        let of_rule = [
            ("error", allowed(Policy::Error)),
            ("allow", allowed(Policy::Allow)),
            ("deny", allowed(Policy::Deny) + allowed(Policy::DenyByStatus)),
            ("local", allowed(Policy::Local)),
        ];
        // When Redis is back, the server deducts there the units that it admitted without Redis.
        let substitutes = counts.of(Policy::Local, Kind::SubstituteAllowed);
        assert!(substitutes <= LOCAL_SHARE, "{substitutes} were let in without redis: {counts:?}");
        for (rule, allowed) in of_rule {
            let taken_later = if rule == "local" { substitutes } else { 0 };
            let is_right = allowed <= LIMIT && allowed + taken_later >= self.least;
            assert!(is_right, "{allowed} were let in by {rule} in round {round}: {counts:?}");
            let key = self.service.get(&format!("/v1/keys/{rule}%7C{rule}={round}")).json();
            let counted = LIMIT - key["remaining"].as_u64().unwrap();
            assert!(counted >= allowed, "{allowed} were let in by {rule}, {counted} are counted: {counts:?}");
        }
    }
}

fn tells_of_the_kills(service: &Service) {
    assert!(service.metric("trypema_breaker_openings_total") >= KILLS as f64);
    let errors = |kind: &str| service.metric(&format!(r#"trypema_store_errors_total{{kind="{kind}"}}"#));
    assert!(errors("unavailable") + errors("outcome_unknown") > 0.0);
    assert!(service.metric(r#"trypema_checks_total{rule="error",result="error"}"#) > 0.0);
    wait_until("the breaker to close", || service.metric("trypema_breaker_open") == 0.0).unwrap();
    assert_eq!(service.get("/readyz").json()["store"], "connected");
    // Outages of under a second may end before the log looks.
    let line = "on_store_failure=local, or the rule's own";
    wait_until("the log to name the policy", || service.program.log().contains(line)).unwrap();
}
