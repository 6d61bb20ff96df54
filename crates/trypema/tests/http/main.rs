//! HTTP and gRPC as clients see them: headers, problem bodies, the middleware, the client address.
#![cfg(feature = "http")]

mod client_address;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod example_axum;
mod example_concurrency;
mod example_llm_gateway;
mod headers;
mod tower;
