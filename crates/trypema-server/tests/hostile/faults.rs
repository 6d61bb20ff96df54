//! A Redis that is killed, stopped, not yet started, or has another password.

#[path = "faults/kill.rs"]
mod kill;
#[path = "faults/load.rs"]
mod load;
#[path = "faults/policy.rs"]
mod policy;
#[path = "faults/stall.rs"]
mod stall;
#[path = "faults/start.rs"]
mod start;
#[path = "faults/verbs.rs"]
mod verbs;
