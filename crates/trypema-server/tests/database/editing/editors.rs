//! Several editors at once: none overwrites a change that it has not seen.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use super::at;
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

const ROUNDS: u64 = 10;
const EDITORS: u64 = 4;
const INCREMENTS: u64 = 4;

fn limit(service: &Service) -> (String, u64) {
    let shown = service.get("/v1/rules/per-user");
    let limit = shown.json()["strategy"]["fixed_window"]["limit"].as_u64().unwrap();
    (shown.header("etag").unwrap().to_owned(), limit)
}

#[test]
fn of_two_editors_with_the_same_revision_one_wins() {
    let scene = Scene::start();
    let services = [scene.service(&[]), scene.service(&[])];
    done(&services[0], "POST", "/v1/rules", &per_user("per-user", 1));
    for round in 0..ROUNDS {
        let (revision, _) = limit(&services[0]);
        let barrier = Barrier::new(2);
        let edit = |number: usize| {
            let wanted = 10 * (round + 1) + number as u64;
            barrier.wait();
            let reply = at(
                &services[number],
                &revision,
                ("PUT", "/v1/rules/per-user"),
                &per_user("per-user", wanted),
            );
            (reply.status, wanted)
        };
        let [one, other] = thread::scope(|scope| {
            let threads = [0, 1].map(|number| {
                let edit = &edit;
                scope.spawn(move || edit(number))
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let mut statuses = [one.0, other.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "round {round}");
        let winner = if one.0 == 200 { one.1 } else { other.1 };
        assert_eq!(limit(&services[1]).1, winner, "round {round}");
    }
    let revision = done(&services[0], "GET", "/v1/rules/per-user", &Value::Null)["revision"].clone();
    assert_eq!(revision, json!(ROUNDS + 1));
}

#[test]
fn nothing_is_lost_by_those_who_try_again_after_a_conflict() {
    let scene = Scene::start();
    let services = [scene.service(&[]), scene.service(&[])];
    done(&services[0], "POST", "/v1/rules", &per_user("per-user", 1));
    thread::scope(|scope| {
        for editor in 0..EDITORS {
            let service = &services[(editor % 2) as usize];
            scope.spawn(move || (0..INCREMENTS).for_each(|_| increment(service)));
        }
    });
    assert_eq!(limit(&services[0]).1, 1 + EDITORS * INCREMENTS);
}

/// Reads the limit, adds one and writes it, until no other editor has changed it in between.
fn increment(service: &Service) {
    loop {
        let (revision, limit) = limit(service);
        match at(service, &revision, ("PUT", "/v1/rules/per-user"), &per_user("per-user", limit + 1)).status {
            200 => return,
            409 => {}
            status => panic!("{status}"),
        }
    }
}
