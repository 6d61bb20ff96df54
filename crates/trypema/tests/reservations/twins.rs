//! The table of reservations in this process and its twin in Redis: the same random operations at the same
//! times get the same answers, field by field, with a clock that stops, leaps and goes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::redis::RedisConnection;
use trypema::rules::{Engine, OnDrop, Request, Reservation, ReserveOptions, Verdict};
use trypema::{ConcurrencyLimit, Decision, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::random::Random;
use trypema_testkit::redis::{Binary, Control, Server};

use super::rules;

/// `only` chooses a single rule; without it, all of them apply, all or nothing.
const RULES: &str = "
units: [tokens]
rules:
  - {id: absolute, scope: user, unit: tokens, when: {only: [absolute, all]}, strategy: {absolute: {limit: 40, window: 20s}}}
  - {id: bucket, scope: user, unit: tokens, when: {only: [bucket, all]}, strategy: {token_bucket: {limit: 40, window: 20s}}}
  - {id: fixed, scope: user, unit: tokens, when: {only: [fixed, all]}, strategy: {fixed_window: {limit: 40, window: 20s}}}
  - {id: sliding, scope: user, unit: tokens, when: {only: [sliding, all]}, strategy: {sliding_window: {limit: 40, window: 20s}}}
  - {id: slots, scope: user, when: {only: [slots, all]}, strategy: {concurrency: {limit: 6, hold: 10s}}}
  - {id: postpaid, scope: user, unit: tokens, postpaid: true, when: {only: [postpaid, all]}, strategy: {fixed_window: {limit: 30, window: 20s}}}
";

/// Replacements of the window of a rule. The last one refills a bucket of another size at the first one's rate.
const WINDOWS: [&str; 4] =
    ["limit: 40, window: 20s", "limit: 40, window: 1h", "limit: 40, window: 7s", "limit: 20, window: 10s"];

const IDS: [&str; 6] = ["absolute", "bucket", "fixed", "sliding", "slots", "postpaid"];

const SEEDS: u64 = 400;
const STEPS: u64 = 40;

/// An engine, its limiter and the reservations that it has made.
struct Side {
    engine: Arc<Engine>,
    rl: Arc<RateLimiter>,
    is_shared: bool,
    made: Vec<Option<String>>,
}

#[derive(Debug, Clone)]
enum Step {
    Reserve {
        user: &'static str,
        only: &'static str,
        costs: [u64; 2],
        ttl: Duration,
        id: Option<&'static str>,
    },
    Settle {
        made: usize,
        costs: Vec<(&'static str, u64)>,
    },
    Release {
        made: usize,
    },
    Renew {
        made: usize,
        ttl: Duration,
    },
    Holders {
        key: String,
    },
    ReleaseHolder {
        key: String,
        nth: usize,
    },
    Reset {
        key: String,
    },
    Check {
        user: &'static str,
        only: &'static str,
        tokens: u64,
    },
    /// Takes slots without a name.
    TakeSlots {
        user: &'static str,
        units: u64,
    },
    /// Replaces the window of every rule.
    Replace {
        window: &'static str,
    },
}

impl Side {
    fn local(clock: &Arc<ManualClock>) -> Self {
        let rl = Arc::new(RateLimiter::builder().clock(clock.clone()).build().unwrap());
        let engine = Arc::new(Engine::local(rl.clone(), rules(RULES)));
        Self { engine, rl, is_shared: false, made: Vec::new() }
    }

    fn redis(connection: &RedisConnection, prefix: &str, clock: &Arc<ManualClock>) -> Self {
        let rl = Arc::new(limiter(connection, prefix, clock).build().unwrap());
        let engine = Arc::new(Engine::redis(rl.clone(), rules(RULES)));
        Self { engine, rl, is_shared: true, made: Vec::new() }
    }

    /// Does a step, and returns everything that the caller learns.
    fn play(&mut self, step: &Step) -> String {
        match step {
            Step::Reserve { user, only, costs, ttl, id } => {
                let (attributes, costs) =
                    ([("user", *user), ("only", *only)], [("tokens", costs[0]), ("requests", costs[1])]);
                let options = ReserveOptions::new(*ttl).unwrap().on_drop(OnDrop::Keep);
                let options = id.map_or(options.clone(), |id| options.with_id(id).unwrap());
                let request = Request::new(&attributes).with_costs(&costs);
                let reserved = wait_for(self.engine.reserve(&request, &options));
                let told = told(&reserved);
                self.made.push(reserved.ok().and_then(Reservation::into_text));
                told
            }
            Step::Settle { made, costs } => match self.text(*made) {
                Some(text) => format!("{:?}", wait_for(self.engine.settle(&text, costs))),
                None => String::new(),
            },
            Step::Release { made } => match self.text(*made) {
                Some(text) => format!("{:?}", wait_for(self.engine.release(&text))),
                None => String::new(),
            },
            Step::Renew { made, ttl } => match self.text(*made) {
                Some(text) => format!("{:?}", wait_for(self.engine.renew(&text, *ttl))),
                None => String::new(),
            },
            Step::Holders { key } => {
                // The ids of the two sides differ, unless they were chosen.
                let holders = wait_for(self.engine.holders(key)).unwrap().unwrap();
                let told: Vec<_> = holders.iter().map(|one| (one.units, one.age, one.expires_in)).collect();
                format!("{told:?}")
            }
            Step::ReleaseHolder { key, nth } => {
                let holders = wait_for(self.engine.holders(key)).unwrap().unwrap();
                let Some(holder) = holders.get(*nth) else { return "nobody".to_owned() };
                format!("{:?}", wait_for(self.engine.release_holder(key, &holder.id)))
            }
            Step::Reset { key } => {
                let had_state = wait_for(self.engine.reset(key)).unwrap();
                // Whether a counter that is as good as new had a state is not the same in both.
                if key.starts_with("slots") { format!("{had_state:?}") } else { String::new() }
            }
            Step::Check { user, only, tokens } => {
                let (attributes, costs) = ([("user", *user), ("only", *only)], [("tokens", *tokens)]);
                let verdict =
                    wait_for(self.engine.check(&Request::new(&attributes).with_costs(&costs))).unwrap();
                decisions(&verdict)
            }
            Step::TakeSlots { user, units } => {
                let limit = ConcurrencyLimit::new(6, Duration::from_secs(10)).unwrap();
                let name = format!("slots|user={user}");
                let decision = match self.is_shared {
                    true => {
                        wait_for(self.rl.redis().concurrency().take(&key(&name), &limit, *units)).unwrap()
                    }
                    false => self.rl.local().concurrency().take(&name, &limit, *units),
                };
                told_decision(&decision)
            }
            Step::Replace { window } => {
                self.engine.replace(rules(&RULES.replace(WINDOWS[0], window)));
                String::new()
            }
        }
    }

    fn text(&self, made: usize) -> Option<String> {
        self.made.get(made).cloned().flatten()
    }
}

fn told(reserved: &Result<Reservation, TrypemaError>) -> String {
    match reserved {
        Err(error) => format!("{error:?}"),
        Ok(reserved) => format!(
            "{} {:?} {} {}",
            reserved.is_allowed(),
            reserved.expires_in(),
            reserved.is_repeated(),
            decisions(reserved.verdict())
        ),
    }
}

fn decisions(verdict: &Verdict) -> String {
    let mut told = format!("{:?} {:?}", verdict.outcome(), verdict.retry_after());
    for rule in verdict.rules() {
        told += &format!("; {} {}", rule.key, told_decision(rule.decision));
    }
    told
}

fn told_decision(decision: &Decision) -> String {
    let (wait, reset) = (decision.retry_after(), decision.reset_after());
    format!("{} {} {wait:?} {reset:?}", decision.is_allowed(), decision.remaining())
}

/// The steps of a walk.
#[derive(Debug, Clone, Copy)]
enum Mix {
    /// All rules and two users, with a clock that never goes back.
    Everything,
    /// One rule and one user, with a clock that goes back. With a single key, neither side forgets a state that
    /// the other one keeps: this process forgets idle keys when new ones come.
    OneKey(&'static str),
}

impl Mix {
    fn of_seed(seed: u64) -> Self {
        match seed % 2 {
            0 => Self::Everything,
            _ => Self::OneKey(IDS[(seed / 2) as usize % IDS.len()]),
        }
    }
}

fn draw(random: &mut Random, mix: Mix, made: usize) -> Step {
    let (user, only) = match mix {
        Mix::Everything if random.once_in(3) => (random.pick(&["ann", "bob"]), "all"),
        Mix::Everything => (random.pick(&["ann", "bob"]), random.pick(&IDS)),
        Mix::OneKey(only) => ("ann", only),
    };
    let key = |random: &mut Random| match mix {
        Mix::Everything => format!("{}|user={user}", random.pick(&IDS)),
        Mix::OneKey(only) => format!("{only}|user={user}"),
    };
    let ttl = |random: &mut Random| {
        Duration::from_micros(random.pick(&[1, 500_000, 3_000_000, 10_000_000, 30_000_000, 3_600_000_000]))
    };
    let one = |random: &mut Random| made.saturating_sub(1 + random.below(6) as usize);
    match random.below(20) {
        0..=7 => Step::Reserve {
            user,
            only,
            costs: [random.pick(&[0, 1, 7, 20, 40, 41]), random.pick(&[0, 1, 1, 1, 2, 6, 7])],
            ttl: ttl(random),
            id: random.once_in(3).then(|| random.pick(&["x", "y"])),
        },
        8..=11 => {
            let units: &[&str] = random.pick(&[&["tokens"][..], &["requests"], &["tokens", "requests"], &[]]);
            let costs = units.iter().map(|unit| (*unit, random.pick(&[0, 1, 5, 20, 60]))).collect();
            Step::Settle { made: one(random), costs }
        }
        12 => Step::Release { made: one(random) },
        13 | 14 => Step::Renew { made: one(random), ttl: ttl(random) },
        15 => Step::Holders { key: key(random) },
        16 => Step::ReleaseHolder { key: key(random), nth: random.below(3) as usize },
        17 if random.once_in(3) => Step::Reset { key: key(random) },
        18 if !matches!(mix, Mix::OneKey(only) if only != "slots") => {
            Step::TakeSlots { user, units: random.pick(&[1, 1, 3, 7]) }
        }
        // A key is idle by the window of its last call: with others beside it, this process forgets it sooner.
        19 if matches!(mix, Mix::OneKey(_)) => Step::Replace { window: random.pick(&WINDOWS) },
        _ => Step::Check { user, only, tokens: random.pick(&[0, 1, 9, 41]) },
    }
}

/// Everything that Redis holds under a prefix: each key with its value and its time to live.
fn dump(control: &mut Control, prefix: &str) -> BTreeMap<String, (Vec<u8>, i64)> {
    let keys = control.command(&["KEYS", &format!("*{prefix}*")]).unwrap();
    let keys: Vec<String> = keys.items().iter().map(|key| key.text()).collect();
    let one = |key: String| {
        let value = control.command(&["DUMP", &key]).unwrap().bytes().to_vec();
        let expires_at = control.command(&["PEXPIRETIME", &key]).unwrap().integer().unwrap();
        (key, (value, expires_at))
    };
    keys.into_iter().map(one).collect()
}

struct Counted {
    reserved: usize,
    denied: usize,
    settled: usize,
}

/// Plays the steps of a seed on both sides. With `control`, looks at the keys in Redis after each step.
fn walk(seed: u64, connection: &RedisConnection, control: Option<&mut Control>) -> Counted {
    let mut random = Random::seeded(seed);
    let clock = Arc::new(ManualClock::default());
    let (prefix, mix) = (format!("t{seed}t"), Mix::of_seed(seed));
    let mut sides = [Side::local(&clock), Side::redis(connection, &prefix, &clock)];
    let mut now = 1_600_000_000_000_000;
    let (mut played, mut control) = (String::new(), control);
    let mut counted = Counted { reserved: 0, denied: 0, settled: 0 };
    for _ in 0..STEPS {
        now = match random.below(12) {
            0..=3 => now,
            4..=8 => now + random.pick(&[1, 999_999, 1_000_000, 2_500_000]),
            9 | 10 => now + random.pick(&[9_999_999, 10_000_000, 20_000_000, 60_000_000]),
            // A counter repairs itself by any call after the clock went back, denied ones included.
            _ if control.is_some() || matches!(mix, Mix::Everything) => now,
            _ => now - random.pick(&[1, 1_000_000, 25_000_000, 7_300_000_000]),
        };
        clock.set(Timestamp::from_micros(now));
        let step = draw(&mut random, mix, sides[0].made.len());
        played += &format!("{now} {step:?}\n");
        let before = control.as_mut().map(|control| dump(control, &prefix));
        let answers = sides.each_mut().map(|side| side.play(&step));
        played += &format!("    {}\n", answers[0]);
        assert_eq!(answers[0], answers[1], "seed {seed}: this process, then Redis, after:\n{played}");
        let is_denied = matches!(step, Step::Reserve { .. }) && answers[0].starts_with("false");
        counted.denied += usize::from(is_denied);
        counted.reserved += usize::from(answers[0].starts_with("true"));
        counted.settled += usize::from(answers[0].contains("Settled {"));
        if let (Some(control), Some(before)) = (control.as_mut(), before) {
            let after = dump(control, &prefix);
            assert!(after.values().all(|(_, expires_at)| *expires_at > 0), "seed {seed}: {after:?}");
            if is_denied {
                let changed: Vec<_> =
                    after.iter().filter(|(key, value)| before.get(*key) != Some(value)).collect();
                assert!(changed.is_empty(), "seed {seed}: a denial changed {changed:?}:\n{played}{before:?}");
                assert_eq!(before.len(), after.len(), "seed {seed}: a denial removed a key");
            }
        }
    }
    // Everything that is still held is released. Only settled reservations with chosen ids are remembered.
    for user in ["ann", "bob"] {
        for id in IDS {
            let key = format!("{id}|user={user}");
            for side in &sides {
                for holder in wait_for(side.engine.holders(&key)).unwrap().unwrap() {
                    assert_eq!(wait_for(side.engine.release_holder(&key, &holder.id)).unwrap(), Some(true));
                }
                assert_eq!(wait_for(side.engine.holders(&key)).unwrap().unwrap(), []);
            }
        }
    }
    counted
}

fn walk_all(connection: &RedisConnection, seeds: std::ops::Range<u64>) {
    let (mut all, count) = (Counted { reserved: 0, denied: 0, settled: 0 }, seeds.end - seeds.start);
    for seed in seeds {
        let Counted { reserved, denied, settled } = walk(seed, connection, None);
        all = Counted {
            reserved: all.reserved + reserved,
            denied: all.denied + denied,
            settled: all.settled + settled,
        };
    }
    let Counted { reserved, denied, settled } = all;
    let steps = (count * STEPS) as usize;
    assert!(
        reserved > steps / 12 && denied > steps / 20 && settled > steps / 40,
        "{reserved} {denied} {settled}"
    );
}

#[test]
fn both_tables_answer_the_same() {
    let server = Server::start().unwrap();
    walk_all(&connect(&server.url()), 0..SEEDS);
}

#[test]
fn both_tables_answer_the_same_on_redis_6_2() {
    let server = Server::builder().binary(Binary::redis_6_2().unwrap()).start().unwrap();
    walk_all(&connect(&server.url()), SEEDS..SEEDS + SEEDS / 2);
}

/// Every key expires, and a denial changes neither a byte nor a time to live.
#[test]
fn keys_expire_and_a_denial_changes_none() {
    let server = Server::start().unwrap();
    let (connection, mut control) = (connect(&server.url()), server.control().unwrap());
    for seed in 10_000..10_060 {
        walk(seed, &connection, Some(&mut control));
    }
}

/// The table of a counter is a key of its own, which is gone when nothing is held.
#[test]
fn an_empty_table_has_no_key() {
    let server = Server::start().unwrap();
    let (connection, mut control) = (connect(&server.url()), server.control().unwrap());
    let clock = Arc::new(ManualClock::default());
    let mut side = Side::redis(&connection, "empty", &clock);
    let is_table = |key: &&String| key.contains(":reservations") || key.contains("slots");
    let mut tables = move || dump(&mut control, "empty").keys().filter(is_table).count();
    let reserve =
        |costs| Step::Reserve { user: "ann", only: "all", costs, ttl: Duration::from_secs(9), id: None };
    for end in [Step::Release { made: 0 }, Step::Settle { made: 0, costs: vec![("tokens", 40)] }] {
        side.made.clear();
        assert!(side.play(&reserve([5, 2])).starts_with("true"));
        assert_eq!(tables(), IDS.len());
        assert!(side.play(&end).contains("Settled {"));
        assert_eq!(tables(), 0, "{end:?}");
        clock.advance(Duration::from_secs(60));
    }
    // What has expired is forgotten with the next reservation, and by Redis itself.
    side.made.clear();
    assert!(side.play(&reserve([5, 2])).starts_with("true"));
    clock.advance(Duration::from_secs(9));
    assert!(side.play(&reserve([6, 1])).starts_with("true"));
    assert!(side.play(&Step::Release { made: 1 }).contains("Settled {"));
    assert_eq!(tables(), 0);
}
