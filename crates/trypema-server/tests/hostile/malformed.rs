//! 10,000 malformed or mutated inputs: none does harm.

#[path = "malformed/bodies.rs"]
mod bodies;
#[path = "malformed/exchange.rs"]
mod exchange;
#[path = "malformed/heads.rs"]
mod heads;
#[path = "malformed/input.rs"]
mod input;
#[path = "malformed/oracle.rs"]
mod oracle;
#[path = "malformed/routes.rs"]
mod routes;

use std::ops::AddAssign;
use std::thread;

use serde_json::json;
use trypema_testkit::random::Random;
use trypema_testkit::redis::wait_until;

use self::exchange::{Answer, exchange};
use self::input::{Expected, Input};
use crate::harness::Service;
use crate::process::{descriptors, is_sound, memory};
use crate::timing::Stopwatch;

const INPUTS: u64 = 10_000;
/// Enough inputs for buffers and arenas to reach their maximum size.
const WARM_UP: u64 = 3_000;
const THREADS: u64 = 4;
/// The growth of a heap without a leak, by fragmentation.
const MEMORY_SLACK: u64 = 8 * 1024 * 1024;
/// A limit that the inputs never exhaust.
const LIMIT: u64 = 1_000_000_000_000;
const RULES: &str = "
rules:
  - {id: all, scope: global, strategy: {fixed_window: {limit: 1000000000000, window: 30d}}}
";

/// The admin token, which lets malformed admin requests get past the authentication.
const TOKEN: &str = "token-of-the-test";

/// The checks and units that were allowed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Spent {
    checks: u64,
    units: u64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.checks += other.checks;
        self.units += other.units;
    }
}

#[test]
fn ten_thousand_malformed_inputs_do_no_harm() {
    let mut service = Service::with_rules(RULES, &["--admin-token", TOKEN, "--log-level", "debug"]);
    service.admin.as_mut().unwrap().token = Some(TOKEN.to_owned());
    let mut spent = attack(&service, 1, WARM_UP);
    // A good connection stays open and is served before and after the attack.
    let mut good = service.client();
    let mut check = || {
        let reply = good.send("POST", "/v1/check", &[], input::GOOD_BODY);
        assert_eq!((reply.status, &reply.json()["allowed"]), (200, &json!(true)));
        Spent { checks: 1, units: 1 }
    };
    spent += check();
    let (memory_before, descriptors_before) = (memory(&service), descriptors(&service));
    let watch = Stopwatch::start();
    spent += attack(&service, 2, INPUTS);
    let took = watch.elapsed();
    spent += check();
    wait_until("all descriptors to come back", || descriptors(&service) <= descriptors_before).unwrap();
    let memory_after = memory(&service);
    println!("{INPUTS} inputs in {took:?}; memory {memory_before} -> {memory_after}; let in {spent:?}");
    assert!(memory_after < memory_before + MEMORY_SLACK, "{memory_before} -> {memory_after}");
    assert_eq!(counted(&service), spent, "something malformed was counted, or something else was not");
    is_sound(&service);
}

/// Returns the checks and units that the server counted.
fn counted(service: &Service) -> Spent {
    let checks = service.metric(r#"trypema_checks_total{rule="all",result="allowed"}"#) as u64;
    let remaining = service.get("/v1/keys/all").json()["remaining"].as_u64().unwrap();
    Spent { checks, units: LIMIT - remaining }
}

/// Sends `inputs` inputs on several threads and returns the checks and units that were allowed.
fn attack(service: &Service, seed: u64, inputs: u64) -> Spent {
    let (address, admin) = (service.address, service.admin_address());
    let attackers: Vec<_> = (0..THREADS)
        .map(|thread| {
            thread::spawn(move || {
                let mut random = Random::seeded(seed * 1_000 + thread);
                let mut spent = Spent::default();
                for _ in 0..inputs / THREADS {
                    let input = Input::any(&mut random);
                    let listener = if input.is_administration() { admin } else { address };
                    let answers = exchange(listener, &input.bytes);
                    spent += judged(&input, &answers);
                }
                spent
            })
        })
        .collect();
    let mut spent = Spent::default();
    attackers.into_iter().for_each(|attacker| spent += attacker.join().unwrap());
    spent
}

/// Fails unless the responses are as expected. Returns the checks and units that they allowed.
fn judged(input: &Input, answers: &[Answer]) -> Spent {
    let told = || format!("{input}\n{answers:?}");
    let is_refusal = |answer: &Answer| (400..500).contains(&answer.status);
    assert!(answers.iter().all(|answer| answer.status == 200 || is_refusal(answer)), "{}", told());
    match &input.expected {
        Expected::Refusal => assert!(answers.iter().all(is_refusal), "{}", told()),
        Expected::SpendsNothing => {
            assert!(answers.len() <= 1, "{}", told());
            return Spent::default();
        }
        Expected::ForwardAuth => {
            let [answer] = answers else { panic!("one request has one answer: {}", told()) };
            let spent = u64::from(answer.status == 200);
            return Spent { checks: spent, units: spent };
        }
        Expected::OneAnswer => assert!(answers.len() <= 1, "{}", told()),
        Expected::Anything => {}
        Expected::ByBody => {
            let [answer] = answers else { panic!("one request has one answer: {}", told()) };
            let asked = oracle::asked(input.body());
            assert!(is_refusal(answer) || asked.is_some(), "no such request can be answered: {}", told());
        }
        Expected::GoodThenGarbage => {
            let first = answers.first().map(|answer| answer.status);
            assert_eq!(first, Some(200), "{}", told());
            assert!(answers[1..].iter().all(is_refusal), "{}", told());
        }
    }
    let mut spent = Spent::default();
    let costs = oracle::asked(input.body()).unwrap_or_else(|| vec![1]);
    for answer in answers.iter().filter(|answer| answer.status == 200) {
        let allowed = oracle::allowed(&answer.body);
        for (cost, _) in costs.iter().zip(allowed).filter(|(_, is_allowed)| *is_allowed) {
            spent += Spent { checks: 1, units: *cost };
        }
    }
    spent
}
