//! HTTP and gRPC as clients see them: headers, problem bodies, the middleware, the client address.
#![cfg(feature = "http")]

mod client_address;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod example_axum;
mod headers;
mod tower;
