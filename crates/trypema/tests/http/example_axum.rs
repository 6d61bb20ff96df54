//! The axum example, served and called by a real HTTP client: status, headers and body for each strategy.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

#[path = "../../examples/axum/app.rs"]
mod app;
mod client;

use client::{Answer, Api};
use trypema::rules::{Engine, Request};

#[test]
fn plans_have_their_own_token_buckets() {
    let api = Api::start();
    for left in [2, 1, 0] {
        let answer = api.get("/search", "free-ann");
        assert_eq!((answer.status, answer.body.as_str()), (200, "three results\n"));
        assert_eq!(answer.limit_of("search-free"), (3, 60));
        assert_eq!(answer.left_of("search-free").0, left);
    }
    let denied = api.get("/search", "free-ann");
    denied.assert_denied("search-free", 20);
    api.advance(19_999);
    assert_eq!(api.get("/search", "free-ann").status, 429);
    api.advance(1);
    assert_eq!(api.get("/search", "free-ann").status, 200, "after exactly Retry-After");

    let statuses: Vec<u16> = (0..6).map(|_| api.get("/search", "pro-bob").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    api.get("/search", "pro-bob").assert_denied("search-pro", 1);
}

#[test]
fn an_absolute_window_spends_what_requests_cost() {
    let api = Api::start();
    assert_eq!(api.get("/export", "free-ann").left_of("exports"), (5, 3_600));
    assert_eq!(api.get("/export", "free-ann").left_of("exports"), (0, 3_600));
    let denied = api.get("/export", "free-ann");
    denied.assert_denied("exports", 3_600);
    assert_eq!(denied.limit_of("exports"), (10, 3_600));
}

#[test]
fn a_fixed_window_starts_anew_on_the_hour() {
    let api = Api::start();
    let statuses: Vec<u16> =
        (1..=5).map(|month| api.get(&format!("/reports/{month}"), "pro-bob").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429], "the months share one counter");
    let denied = api.get("/reports/6", "pro-bob");
    let wait = denied.retry_after().unwrap();
    denied.assert_denied("reports", wait);
    api.advance(wait * 1_000);
    assert_eq!(api.get("/reports/6", "pro-bob").status, 200);
}

#[test]
fn a_sliding_window_counts_by_address() {
    let api = Api::start();
    let statuses: Vec<u16> = ["a", "b", "c", "d", "e"].map(|key| api.get("/feed", key).status).to_vec();
    assert_eq!(statuses, [200, 200, 200, 200, 429], "whatever key is claimed");
    let denied = api.get("/feed", "f");
    denied.assert_denied("feed", denied.retry_after().unwrap());
}

#[test]
fn suppression_admits_some() {
    let api = Api::start();
    let next = |_| {
        api.advance(1_000);
        api.post("/events", "free-ann")
    };
    let answers: Vec<Answer> = (0..60).map(next).collect();
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((5..=8).contains(&admitted), "{admitted}: above the limit of 4, never above 8");
    let denied = answers.iter().find(|answer| answer.status == 429).unwrap();
    denied.assert_denied("events", denied.retry_after().unwrap());
}

#[test]
fn abuse_blocks() {
    let api = Api::start();
    assert_eq!([(); 2].map(|()| api.post("/verify", "x").status), [200, 200]);
    api.post("/verify", "x").assert_denied("codes", 600);
    api.advance(599_000);
    assert_eq!(api.post("/verify", "x").status, 429);
}

#[test]
fn overrides_lists_and_exceptions() {
    let api = Api::start();
    let special = api.get("/search", "free-acme");
    assert_eq!((special.limit_of("search-free"), special.left_of("search-free").0), ((30, 60), 29));
    let blocked = api.get("/reports/1", "pro-leaked");
    assert_eq!((blocked.status, blocked.retry_after()), (403, None), "for good");
    for _ in 0..10 {
        let internal = api.get("/search", "internal");
        assert_eq!((internal.status, internal.header("ratelimit")), (200, None));
        assert_eq!(api.get("/healthz", "").header("ratelimit"), None);
    }
    assert_eq!(api.get("/search", "").status, 200, "without a key no rule but the trial applies");
}

#[test]
fn spelling_a_path_another_way_helps_nobody() {
    let api = Api::start();
    (0..3).for_each(|_| drop(api.get("/search", "free-ann")));
    for path in ["/search?x=1", "//search", "/search/", "/s%65arch"] {
        assert_eq!(api.get(path, "free-ann").status, 429, "{path}");
    }
    assert_eq!(api.get("/./search", "free-ann").status, 400, "dot segments are refused");
}

#[test]
fn what_it_logs_is_explained() {
    let api = Api::start();
    let _ = api.get("/search", "free-ann");
    let engine: &Engine = api.engine();
    let attributes = [
        ("ip", "127.0.0.1"),
        ("endpoint", "/search"),
        ("method", "GET"),
        ("api_key", "free-ann"),
        ("plan", "free"),
    ];
    let explained = api.wait(engine.explain(&Request::new(&attributes)));
    let left: Vec<_> = explained.applying().map(|rule| (rule.decision.rule.id.as_str(), rule.left)).collect();
    assert_eq!(left, [("search-free", 2), ("trial-per-address", 99)]);
    assert_eq!(explained.not_applying().count(), 6);
}
