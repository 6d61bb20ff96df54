//! Reservations that are settled below their estimate, for measuring the scripts of settlements.

use std::sync::Arc;
use std::time::Duration;

use trypema::rules::{Engine, Request, Reservation, ReserveOptions, SettledStatus};

use super::contender::key_names;
use super::ours;
use crate::reservations::rules;

/// The strategies whose refund has a usual case (`quick/refund/*.lua`), with a limit that no run reaches. The
/// bucket refills a token in 26 s: one that was full again would have nothing to refund.
pub const SETTLED: [(&str, &str); 4] = [
    ("absolute", "{absolute: {limit: 1000000000, window: 1h}}"),
    ("token bucket", "{token_bucket: {limit: 100000, window: 30d}}"),
    ("sliding window", "{sliding_window: {limit: 1000000000, window: 1h}}"),
    ("fixed window", "{fixed_window: {limit: 1000000000, window: 1h}}"),
];

const TTL: Duration = Duration::from_secs(60);

/// The reservations of one round, one per key.
#[derive(Clone, Copy)]
pub struct Settling {
    pub in_flight: usize,
    pub keys: usize,
}

/// Returns an engine with one rule of this strategy on the Redis server at `url`.
pub async fn engine(url: &str, strategy: &str) -> Arc<Engine> {
    let limiter = ours::builder(url).await.build().expect("a limiter");
    Arc::new(Engine::redis(Arc::new(limiter), rules(strategy, false)))
}

impl Settling {
    /// Reserves 30 units of each key.
    pub async fn reserve(self, engine: &Arc<Engine>) -> Vec<Reservation> {
        let tasks = self.in_parts(key_names(self.keys)).into_iter().map(|names| {
            let engine = Arc::clone(engine);
            tokio::spawn(async move {
                let mut reserved = Vec::with_capacity(names.len());
                for name in names {
                    reserved.push(reserve(&engine, &name).await);
                }
                reserved
            })
        });
        let mut reserved = Vec::with_capacity(self.keys);
        for task in tasks.collect::<Vec<_>>() {
            reserved.extend(task.await.expect("a task that ends"));
        }
        reserved
    }

    /// Settles each reservation at 20 units, which refunds ten.
    pub async fn settle(self, reserved: Vec<Reservation>) {
        let tasks = self.in_parts(reserved).into_iter().map(|reserved| {
            tokio::spawn(async move {
                for mut reservation in reserved {
                    let settled = reservation.settle(&[("requests", 20)]).await.expect("a valid cost");
                    let SettledStatus::Settled { refunded, .. } = settled.rules[0].status else {
                        panic!("{settled:?}");
                    };
                    // A bucket has refilled a part of a token meanwhile.
                    assert!(refunded >= 9, "{settled:?}");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("a task that ends");
        }
    }

    /// Returns a part of `items` for each task.
    fn in_parts<T>(self, items: Vec<T>) -> Vec<Vec<T>> {
        let mut parts: Vec<Vec<T>> = (0..self.in_flight).map(|_| Vec::new()).collect();
        for (index, item) in items.into_iter().enumerate() {
            parts[index % self.in_flight].push(item);
        }
        parts
    }
}

async fn reserve(engine: &Arc<Engine>, name: &str) -> Reservation {
    let attributes = [("user", name)];
    let options = ReserveOptions::new(TTL).expect("a valid time");
    let request = Request::new(&attributes).costing(30);
    let reservation = engine.reserve(&request, &options).await.expect("an answer");
    assert!(reservation.is_allowed(), "the limit is never reached");
    reservation
}
