//! Keys on different servers, one of which fails between the steps of one call. The test polls the call by
//! hand, so that it controls each step.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{Limit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{self, connect, runtime, wait_for};
use trypema_testkit::redis::{Cluster, Server, wait_until};

use super::multi::{server_of, spread, steady};
use crate::all_or_nothing::asked::{Asked, checks, six};
use crate::all_or_nothing::denials::seen;
use crate::batching::crowd::Crowd;
use crate::batching::on_redis::{OnRedis, state_name};

const CAPACITY: u64 = 10;
const COST: u64 = 3;
/// Long enough for the steps of a test, short enough to wait for.
const DEADLINE: Duration = Duration::from_secs(2);

/// Three keys on three servers, each with a check of the same cost.
struct Scene<'c> {
    cluster: &'c Cluster,
    rl: RateLimiter,
    /// A second client of the same cluster.
    other: RateLimiter,
    asked: [Asked; 3],
    servers: [&'c Server; 3],
}

/// Whether a call was admitted.
type Answer = Result<bool, TrypemaError>;

/// One limit of each strategy.
fn limits(factor: f64) -> [Limit; 6] {
    six(CAPACITY, Duration::from_secs(3_600), factor)
}

impl<'c> Scene<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let window = &limits(1.0)[4];
        Self::with(cluster, [window; 3])
    }

    fn with(cluster: &'c Cluster, limits: [&Limit; 3]) -> Self {
        let keys = spread(cluster, "between");
        let asked = [0, 1, 2].map(|index| Asked::new(&keys[index], limits[index], COST));
        let servers = asked.each_ref().map(|asked| server_of(cluster, &asked.key));
        let [rl, other] = [scene_limiter(cluster), scene_limiter(cluster)];
        let scene = Self { cluster, rl, other, asked, servers };
        // Loads the scripts on every server.
        for rl in [&scene.rl, &scene.other] {
            let reserved = wait_for(rl.redis().take_all_with_receipts(&checks(&scene.asked))).unwrap();
            wait_for(rl.redis().refund_all(&checks(&scene.asked), &reserved.receipts)).unwrap();
        }
        assert_eq!(scene.used(), [0; 3]);
        scene
    }

    async fn take_all(&self) -> Answer {
        self.rl.redis().take_all(&checks(&self.asked)).await.map(|together| together.is_allowed)
    }

    /// The units spent of each key, read through a new connection.
    fn used(&self) -> [u64; 3] {
        let rl = scene_limiter(self.cluster);
        self.asked.each_ref().map(|asked| {
            let usage = wait_for(rl.redis().peek_all(&checks(&[asked.costing(0)]))).unwrap();
            CAPACITY - usage.decisions[0].remaining()
        })
    }

    /// The other client takes all units of a key.
    fn exhaust(&self, index: usize) {
        let all = [self.asked[index].costing(CAPACITY)];
        assert!(wait_for(self.other.redis().take_all(&checks(&all))).unwrap().is_allowed);
    }

    /// Asserts that each key admits its remaining units and no more.
    fn assert_no_more_than_is_left(&self) {
        let rl = scene_limiter(self.cluster);
        for (asked, used) in self.asked.iter().zip(self.used()) {
            let take =
                |cost| wait_for(rl.redis().take_all(&checks(&[asked.costing(cost)]))).unwrap().is_allowed;
            assert!(take(CAPACITY - used) && !take(1), "{asked:?} of which {used} are used");
        }
    }
}

fn scene_limiter(cluster: &Cluster) -> RateLimiter {
    let clock = Arc::new(ManualClock::default());
    let builder = blocking::limiter(&connect(&cluster.url()), "trypema", &clock);
    builder.redis_deadline(DEADLINE).build().unwrap()
}

/// The number of script calls that a server has run and replied to.
fn script_calls(server: &Server) -> u64 {
    let stats = server.info("commandstats").unwrap();
    let calls =
        stats.text("cmdstat_evalsha").split([',', '=']).nth(1).map_or(0, |calls| calls.parse().unwrap());
    // The reply to `PING` comes after the replies to all earlier commands.
    server.control().unwrap().command(&["PING"]).unwrap();
    calls
}

fn wait_for_calls(server: &Server, calls: u64) {
    wait_until("a script to run", || script_calls(server) >= calls).unwrap();
}

fn assert_failed(answer: &Answer) {
    assert!(matches!(answer, Err(TrypemaError::RedisError(_))), "{answer:?}");
}

#[test]
fn a_server_that_is_not_there_fails_the_request_and_nothing_is_spent() {
    let cluster = steady();
    let scene = Scene::new(&cluster);
    scene.servers[2].stop().unwrap();
    assert_failed(&wait_for(scene.take_all()));
    scene.servers[2].cont().unwrap();
    assert_eq!(scene.used(), [0; 3]);
    scene.assert_no_more_than_is_left();
}

/// A server stops after all servers have passed the peek: the reservations on the others are refunded.
#[test]
fn a_server_that_stops_before_it_reserves_leaves_at_most_its_own_cost_spent() {
    let cluster = steady();
    let scene = Scene::new(&cluster);
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    let before = peek(&scene, &mut crowd);
    scene.servers[0].stop().unwrap();
    assert!(script_calls(scene.servers[1]) == before[1] + 1, "nothing is reserved yet");
    let answers: Vec<Answer> = crowd.finish().into_iter().flatten().collect();
    scene.servers[0].cont().unwrap();
    assert_failed(&answers[0]);
    let used = scene.used();
    assert_eq!(used[1..], [0; 2], "given back");
    assert!(used[0] <= COST, "{used:?}");
    scene.assert_no_more_than_is_left();
}

/// Starts a call and stops when every server has passed the peek, before the caller has received the replies.
/// Returns the numbers of script calls from before.
fn peek<'s>(scene: &'s Scene<'_>, crowd: &mut Crowd<'s, Answer>) -> [u64; 3] {
    let before = scene.servers.map(script_calls);
    // A polled caller continues as far as possible, so one server is stopped to hold it.
    scene.servers[1].stop().unwrap();
    crowd.add(scene.take_all());
    scene.servers[1].cont().unwrap();
    (0..3).for_each(|index| wait_for_calls(scene.servers[index], before[index] + 1));
    before
}

/// Brings a call to the point where its first and third keys are reserved. The other client has exhausted the
/// second key since the peek, and its server is stopped before it replies.
fn reserve_but_one<'s>(scene: &'s Scene<'_>, crowd: &mut Crowd<'s, Answer>) {
    let before = peek(scene, crowd);
    scene.exhaust(1);
    scene.servers[1].stop().unwrap();
    while [0, 2].iter().any(|index| script_calls(scene.servers[*index]) < before[*index] + 2) {
        let woken = crowd.next_woken();
        assert!(!crowd.poll(woken), "it waits for the one that is stopped");
    }
}

/// One server denies, and another dies before its refund: the denial stands, and at most the cost is lost.
#[test]
fn a_server_that_dies_before_it_is_given_back_leaves_at_most_the_cost_spent() {
    let cluster = steady();
    let scene = Scene::new(&cluster);
    let slot = cluster.slot_of(&scene.asked[0].key).unwrap();
    let replica = cluster.replica_of(slot).unwrap();
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    reserve_but_one(&scene, &mut crowd);
    let mut control = replica.control().unwrap();
    control.command(&["READONLY"]).unwrap();
    // Waits for the reserved state, not only for any state: a refunded key keeps its state.
    let state = state_name(&scene.asked[0]);
    let mut stored = || control.command(&["GET", &state]).unwrap().bytes().to_vec();
    let reserved = scene.servers[0].control().unwrap().command(&["GET", &state]).unwrap().bytes().to_vec();
    wait_until("the replica to know", || stored() == reserved).unwrap();
    scene.servers[0].kill_9().unwrap();
    scene.servers[1].cont().unwrap();
    let answers: Vec<Answer> = crowd.finish().into_iter().flatten().collect();
    assert_eq!(answers, [Ok(false)]);
    replica.control().unwrap().command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).unwrap();
    cluster.wait_until_ok().unwrap();
    assert_eq!(scene.used(), [COST, CAPACITY, 0], "lost, exhausted, given back");
    scene.assert_no_more_than_is_left();
}

/// A caller that is dropped in between cannot refund.
#[test]
fn a_caller_that_leaves_before_it_gives_back_leaves_at_most_the_cost_spent() {
    let cluster = steady();
    let scene = Scene::new(&cluster);
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    reserve_but_one(&scene, &mut crowd);
    crowd.cancel(0);
    scene.servers[1].cont().unwrap();
    assert_eq!(scene.used(), [COST, CAPACITY, COST]);
    scene.assert_no_more_than_is_left();
}

/// One check denies the call. The other client exhausts the suppressed key before the veto reaches it. The
/// suppressed strategy observes the call nevertheless.
#[test]
fn a_check_that_is_vetoed_counts_the_call_though_by_then_it_would_deny_it() {
    let cluster = steady();
    let [suppressed, window] = [1, 4].map(|strategy| limits(1.0)[strategy].clone());
    let scene = Scene::with(&cluster, [&suppressed, &window, &window]);
    scene.exhaust(1);
    let before = script_calls(scene.servers[0]);
    scene.servers[2].stop().unwrap();
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    crowd.add(scene.take_all());
    wait_for_calls(scene.servers[0], before + 1);
    scene.exhaust(0);
    scene.servers[2].cont().unwrap();
    let answers: Vec<Answer> = crowd.finish().into_iter().flatten().collect();
    assert_eq!(answers, [Ok(false)]);
    assert_eq!(scene.used(), [CAPACITY, CAPACITY, 0]);
    let redis =
        OnRedis { rl: Arc::new(scene_limiter(&cluster)), control: Box::new(|_| panic!("not needed")) };
    // The calls that were refunded before were observed too.
    let drawing = Asked::new(&scene.asked[0].key, &limits(2.0)[1], 1);
    assert_eq!(seen(&redis, &drawing), 2 * COST + CAPACITY + COST);
}
