//! What callers see over HTTP and gRPC: headers, problems, the middleware, whose request it was.
#![cfg(feature = "http")]

mod client_address;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod example_axum;
mod headers;
mod tower;
