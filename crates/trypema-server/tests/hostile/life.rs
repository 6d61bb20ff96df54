//! SIGTERM and SIGINT: no answered request is lost, and nothing keeps the server alive.

#[path = "life/caller.rs"]
mod caller;
#[path = "life/drain.rs"]
mod drain;
#[path = "life/rolling.rs"]
mod rolling;
#[path = "life/stop.rs"]
mod stop;
