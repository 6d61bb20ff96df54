//! Hostile clients of front ends that have nothing against them: `net` bounds what a connection may do, whatever it speaks.

#[path = "front_ends/checks.rs"]
mod checks;
#[path = "front_ends/clients.rs"]
mod clients;
#[path = "front_ends/decisions.rs"]
mod decisions;
#[path = "front_ends/drain.rs"]
mod drain;
#[path = "front_ends/resets.rs"]
mod resets;
#[path = "front_ends/server.rs"]
mod server;
#[path = "front_ends/slow.rs"]
mod slow;
#[path = "front_ends/streams.rs"]
mod streams;
#[path = "front_ends/unread.rs"]
mod unread;
