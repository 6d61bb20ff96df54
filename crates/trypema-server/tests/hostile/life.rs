//! SIGTERM and SIGINT: nothing that was answered is lost, and nothing keeps the service alive.

#[path = "life/caller.rs"]
mod caller;
#[path = "life/drain.rs"]
mod drain;
#[path = "life/stop.rs"]
mod stop;
