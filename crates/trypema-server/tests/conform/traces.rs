//! Every trace of the library, through HTTP: the same decisions, numbers and waits.

#[path = "traces/numbers.rs"]
mod numbers;
#[path = "traces/player.rs"]
mod player;
#[path = "traces/said.rs"]
mod said;

use std::path::PathBuf;

use trypema_testkit::redis::Server;
use trypema_testkit::trace::Trace;

use self::player::{Difference, differences, is_never_leased, is_playable};
use self::said::Said;
use crate::in_process::InProcess;

/// The minimum number of traces that can be played through HTTP. The others use receipts, `upto`, manual
/// blocks, `forget`, or the sticky calls of the trypema 1.x API.
const MIN_PLAYED: usize = 80;
/// The minimum number of those traces that never use leases.
const MIN_NOT_LEASED: usize = 20;

/// Returns all traces: first those whose operations HTTP supports, then the others.
fn traces() -> (Vec<Trace>, Vec<Trace>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "trace")).collect();
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        Trace::parse(&name, &std::fs::read_to_string(path).unwrap()).unwrap()
    };
    files.iter().map(read).partition(is_playable)
}

fn assert_none(found: &[Difference]) {
    let texts: Vec<&str> = found.iter().map(|difference| difference.text.as_str()).collect();
    assert!(texts.is_empty(), "{} answers differ:\n{}", texts.len(), texts.join("\n"));
}

#[test]
fn most_traces_can_be_played() {
    let (played, others) = traces();
    let names: Vec<&str> = others.iter().map(|trace| trace.name.as_str()).collect();
    println!("{} traces are played, {} need what HTTP does not have: {names:?}", played.len(), others.len());
    assert!(played.len() >= MIN_PLAYED, "only {} of {}", played.len(), played.len() + others.len());
    assert!(played.len() > others.len());
}

#[test]
fn counters_in_memory_answer_every_trace() {
    let play = |trace: &Trace| differences(trace, &InProcess::start(""), |_, said| said);
    assert_none(&traces().0.iter().flat_map(play).collect::<Vec<_>>());
}

/// Another front end gives the same answers.
#[cfg(feature = "unstable-testkit")]
#[test]
fn the_line_protocol_answers_every_trace() {
    let play = |trace: &Trace| differences(trace, &InProcess::start("").by_lines(), |_, said| said);
    assert_none(&traces().0.iter().flat_map(play).collect::<Vec<_>>());
}

#[test]
fn counters_in_redis_answer_every_trace() {
    assert_none(&on_redis("redis", &traces().0));
}

/// Leases may leave some units unused, and their numbers are those of the lease. Only requests that go to
/// Redis are exact.
#[test]
fn counters_that_may_be_leased_answer_what_is_not_leased() {
    let not_leased: Vec<Trace> = traces().0.into_iter().filter(is_never_leased).collect();

    assert!(not_leased.len() >= MIN_NOT_LEASED, "only {}", not_leased.len());
    assert_none(&on_redis("hybrid", &not_leased));
}

/// A cost beyond the limit is denied without a retry time, even if the provider remembers an earlier denial
/// with one for the key.
#[test]
fn what_never_fits_is_never_let_in_by_leases_either() {
    let redis = Server::shared().unwrap();
    let settings =
        format!("provider: hybrid\nredis_url: {}\nredis_prefix: {}", redis.url(), redis.unique_prefix());
    let rules = "rules: [{id: five, scope: user, strategy: {token_bucket: {limit: 5, window: 1s}}}]";
    let service = InProcess::start(&format!("{settings}\nredis_deadline: 20s\n")).ruled_by(rules);
    let mut client = service.client();
    let mut ask = |cost: u64| {
        let body = serde_json::json!({"attributes": {"user": "ann"}, "cost": cost}).to_string();
        client.send("POST", "/v1/check", &[], &body).json()["retry_after_ms"].as_u64()
    };
    assert_eq!([ask(5), ask(1), ask(6), ask(u64::MAX), ask(1)], [Some(0), Some(200), None, None, Some(200)]);
}

fn on_redis(provider: &str, traces: &[Trace]) -> Vec<Difference> {
    let redis = Server::shared().unwrap();
    // The provider remembers denials and requests leases in this interval, which the traces assume.
    let interval = if provider == "hybrid" { "sync_interval: 100ms\n" } else { "" };
    let play = |trace: &Trace| {
        let settings = format!(
            "provider: {provider}\nredis_url: {}\nredis_prefix: {}\nredis_deadline: 20s\n{interval}",
            redis.url(),
            redis.unique_prefix()
        );
        differences(trace, &InProcess::start(&settings), |_, said| said)
    };
    traces.iter().flat_map(play).collect()
}

/// Makes sure that the comparison can fail: changes each number of the library's answer and expects a
/// difference.
#[test]
fn every_number_is_compared() {
    let text = "# two a second\nfixed_window 2/1s\n+0 ann 2 -> allowed\n+1us ann -> denied 999999us\n";
    let trace = Trace::parse("two.trace", text).unwrap();
    let spoilers: [fn(&mut said::Decided); 5] = [
        |said| said.is_allowed = !said.is_allowed,
        |said| said.limit += 1,
        |said| said.remaining += 1,
        |said| said.retry_after_ms = said.retry_after_ms.map(|wait| wait + 1),
        |said| said.reset_after_ms += 1,
    ];
    for spoil in spoilers {
        let found = differences(&trace, &InProcess::start(""), |line, said| match said {
            Said::Decided(mut decided) if line.number == 4 => {
                spoil(&mut decided);
                Said::Decided(decided)
            }
            said => said,
        });
        let lines: Vec<usize> = found.iter().map(|difference| difference.line).collect();
        assert_eq!(lines, [4], "{found:?}");
    }
}
