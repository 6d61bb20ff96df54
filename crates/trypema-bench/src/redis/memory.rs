//! The bytes in Redis, measured by `MEMORY USAGE` of all Redis keys that belong to one limited key.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use trypema::clock::ManualClock;

use super::contender::{
    ABSOLUTE, ABUSE, FIXED_WINDOW, GCRA, Load, PUBLISHED_ABSOLUTE, PUBLISHED_SUPPRESSED, SLIDING_WINDOW,
    SUPPRESSED, TOKEN_BUCKET, TOKEN_BUCKET_OF_TWO, key_names, open, open_ours,
};
use super::drive::Driven;
use super::ours;
use super::server::Place;

/// The numbers of buckets that are measured.
pub const BUCKETS: [usize; 4] = [1, 50, 500, 6_000];

/// The default group of both trypema 2.2.1 and our provider.
const GROUP: Duration = Duration::from_millis(10);

/// The bytes that one contender stores for one limited key.
pub struct Bytes {
    pub name: &'static str,
    /// One request of the key that the documents of trypema 1.x use.
    pub seeds_key: f64,
    /// With a key of 19 bytes, for each of [`BUCKETS`].
    pub buckets: Vec<f64>,
}

pub fn measured(place: &mut Place) -> Vec<Bytes> {
    let rows = [
        (GCRA, 1),
        (PUBLISHED_ABSOLUTE, 2),
        (PUBLISHED_SUPPRESSED, 2),
        (ABSOLUTE, 4),
        (SUPPRESSED, 4),
        (TOKEN_BUCKET, 1),
        (TOKEN_BUCKET_OF_TWO, 1),
        (SLIDING_WINDOW, 1),
        (FIXED_WINDOW, 1),
        (ABUSE, 1),
    ];
    let mut row = |(name, counts): (&'static str, usize)| {
        let mut bytes = |key: &str, buckets| {
            place.server.flush();
            fill(&place.runtime, (name, &place.server.url()), (key, buckets));
            place.server.bytes()
        };
        let seeds_key = bytes("user_123", 1);
        let buckets = BUCKETS[..counts].iter().map(|buckets| bytes(&key_names(1)[0], *buckets)).collect();
        Bytes { name, seeds_key, buckets }
    };
    rows.into_iter().map(&mut row).collect()
}

/// Opens `buckets` buckets of `key`. Ours are opened by advancing a manual clock, those of the others by
/// sleeping.
fn fill(runtime: &Runtime, (name, url): (&str, &str), (key, buckets): (&str, usize)) {
    let names = [key.to_owned()];
    let is_ours = name.starts_with("ours");
    let clock = Arc::new(ManualClock::default());
    let contender: Box<dyn Driven> = if is_ours {
        let builder = runtime.block_on(ours::builder(url)).clock(clock.clone());
        open_ours(name, Load::Young, &names, builder.build().expect("valid options"))
    } else {
        runtime.block_on(open(name, Load::Young, (url, &names)))
    };
    for bucket in 0..buckets {
        match bucket {
            0 => {}
            _ if is_ours => clock.advance(GROUP),
            // Calls within one group join the same bucket.
            _ => std::thread::sleep(GROUP + Duration::from_millis(1)),
        }
        contender.call(runtime);
    }
}
