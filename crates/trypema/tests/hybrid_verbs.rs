//! Every verb of the hybrid provider, and what it promises, on a driven clock and a real Redis.
#![cfg(feature = "redis-tokio")]
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

#[path = "hybrid_verbs/abuse.rs"]
mod abuse;
#[path = "hybrid_verbs/background.rs"]
mod background;
#[path = "hybrid_verbs/bounds.rs"]
mod bounds;
#[path = "hybrid_verbs/clocks.rs"]
mod clocks;
#[path = "counting_allocator/mod.rs"]
#[allow(dead_code, reason = "only bytes are of interest here")]
mod counting_allocator;
#[path = "hybrid_verbs/deciding.rs"]
mod deciding;
#[path = "hybrid_verbs/denials.rs"]
mod denials;
#[path = "hybrid_verbs/journal.rs"]
mod journal;
#[path = "hybrid_verbs/leaving.rs"]
mod leaving;
#[path = "hybrid_verbs/observed.rs"]
mod observed;
#[path = "hybrid_verbs/receipts.rs"]
mod receipts;
#[path = "hybrid_verbs/scene.rs"]
mod scene;
#[path = "hybrid_verbs/sharing.rs"]
mod sharing;
#[cfg(feature = "redis-smol")]
#[path = "hybrid_verbs/smol.rs"]
mod smol;
#[path = "hybrid_verbs/split.rs"]
mod split;
#[path = "hybrid_verbs/suppressed.rs"]
mod suppressed;
#[path = "hybrid_verbs/threads.rs"]
mod threads;
#[path = "hybrid_verbs/together.rs"]
mod together;
#[path = "hybrid_verbs/windows.rs"]
mod windows;
