//! Clients that occupy connections: silent ones, slow ones, and ones that never read.

#[path = "slow/budget.rs"]
mod budget;
#[path = "slow/crowd.rs"]
mod crowd;
#[path = "slow/idle.rs"]
mod idle;
#[path = "slow/late.rs"]
mod late;
#[path = "slow/peers.rs"]
mod peers;
#[path = "slow/room.rs"]
mod room;
#[path = "slow/turns.rs"]
mod turns;
#[path = "slow/unread.rs"]
mod unread;
