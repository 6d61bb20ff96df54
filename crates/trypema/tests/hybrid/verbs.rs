//! Every verb of the hybrid provider, and what it promises, on a driven clock and a real Redis.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

/// Runs a claim for every strategy whose units are leased.
macro_rules! for_every_leased {
    ($claim:ident) => {{
        $claim::<trypema::strategy::Absolute>();
        $claim::<trypema::strategy::Suppressed>();
        $claim::<trypema::strategy::TokenBucket>();
        $claim::<trypema::strategy::SlidingWindow>();
        $claim::<trypema::strategy::FixedWindow>();
    }};
}

/// Runs a claim for every leased strategy that shuts at its limit.
macro_rules! for_every_exact {
    ($claim:ident) => {{
        $claim::<trypema::strategy::Absolute>();
        $claim::<trypema::strategy::TokenBucket>();
        $claim::<trypema::strategy::SlidingWindow>();
        $claim::<trypema::strategy::FixedWindow>();
    }};
}

#[path = "verbs/abuse.rs"]
mod abuse;
#[path = "verbs/background.rs"]
mod background;
#[path = "verbs/bounds.rs"]
mod bounds;
#[path = "verbs/clocks.rs"]
mod clocks;
#[path = "../counting_allocator/mod.rs"]
#[allow(dead_code, reason = "only bytes are of interest here")]
mod counting_allocator;
#[path = "verbs/deciding.rs"]
mod deciding;
#[path = "verbs/denials.rs"]
mod denials;
#[path = "verbs/journal.rs"]
mod journal;
#[path = "verbs/leaving.rs"]
mod leaving;
#[path = "verbs/observed.rs"]
mod observed;
#[path = "verbs/receipts.rs"]
mod receipts;
#[path = "verbs/scene.rs"]
mod scene;
#[path = "verbs/sharing.rs"]
mod sharing;
#[cfg(feature = "redis-smol")]
#[path = "verbs/smol.rs"]
mod smol;
#[path = "verbs/split.rs"]
mod split;
#[path = "verbs/suppressed.rs"]
mod suppressed;
#[path = "verbs/threads.rs"]
mod threads;
#[path = "verbs/together.rs"]
mod together;
#[path = "verbs/windows.rs"]
mod windows;
