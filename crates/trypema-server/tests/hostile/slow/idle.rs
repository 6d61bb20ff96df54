//! 10,000 sockets that send nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trypema_testkit::own_process::in_own_process;
use trypema_testkit::redis::wait_until;

use super::crowd::{fitting, good_client, pour};
use crate::harness::Service;
use crate::process::{descriptors, is_sound, memory};

const SOCKETS: usize = 10_000;
/// The number of requests of a good client of each kind. One in a hundred may be slow.
const REQUESTS: usize = 300;
/// The noise of a machine that does other work. `cargo xtask soak connections` measures more precisely.
const NOISE: Duration = Duration::from_millis(500);
/// The maximum memory of a silent connection: its entry, its task and the registration of the socket.
const MEMORY_PER_SOCKET: u64 = 4 * 1024;
/// The maximum difference between two crowds of the same size.
const MEMORY_SLACK: u64 = 4 * 1024 * 1024;

/// The sockets of the clients need most of the descriptors that a process may have.
#[test]
fn ten_thousand_idle_sockets_within_the_bound() {
    in_own_process("slow::idle::ten_thousand_idle_sockets_within_the_bound", || _ = crowded("10000"));
}

#[test]
fn ten_thousand_idle_sockets_beyond_the_bound() {
    in_own_process("slow::idle::ten_thousand_idle_sockets_beyond_the_bound", || {
        let evicted = crowded("2000");
        assert!(evicted >= 2 * 8_000 - 100, "{evicted} evicted");
    });
}

/// Crowds a server twice and returns the number of connections that it closed in favour of others.
fn crowded(max_connections: &str) -> u64 {
    let sockets = fitting(SOCKETS);
    let service = Service::start(&["--max-connections", max_connections]);
    let mut kept = service.client();
    let calm = good_client(service.address, &mut kept, REQUESTS);
    let bound = NOISE.max(calm * 2);
    let (calm_memory, calm_descriptors) = (memory(&service), descriptors(&service));

    let crowd_comes = |kept: &mut _| {
        let has_come = AtomicBool::new(false);
        thread::scope(|scope| {
            let coming = scope.spawn(|| {
                let crowd = pour(service.address, sockets);
                has_come.store(true, Ordering::Relaxed);
                crowd
            });
            let mut slowest = Duration::ZERO;
            while !has_come.load(Ordering::Relaxed) {
                slowest = slowest.max(good_client(service.address, kept, 50));
            }
            (coming.join().unwrap(), slowest)
        })
    };
    let (crowd, coming) = crowd_comes(&mut kept);
    let crowded = good_client(service.address, &mut kept, REQUESTS);
    let held = service.metric("trypema_connections") as u64;
    let crowded_memory = memory(&service);
    let per_socket = crowded_memory.saturating_sub(calm_memory) / held;
    println!(
        "max {max_connections}: p99 {calm:?} calm, {coming:?} while they come, {crowded:?} with {held} open; {per_socket} bytes each"
    );
    assert!(crowded <= bound, "{crowded:?} with a crowd, {calm:?} without");
    assert!(per_socket <= MEMORY_PER_SOCKET, "{per_socket} bytes for a silent connection");

    drop(crowd);
    wait_until("the crowd to be gone", || descriptors(&service) <= calm_descriptors).unwrap();
    let (crowd, _) = crowd_comes(&mut kept);
    good_client(service.address, &mut kept, REQUESTS);
    let again = memory(&service);
    assert!(again <= crowded_memory + MEMORY_SLACK, "{crowded_memory} bytes, then {again}");
    drop(crowd);
    wait_until("the crowd to be gone", || descriptors(&service) <= calm_descriptors).unwrap();
    is_sound(&service);
    service.metric(r#"trypema_connections_closed_early_total{reason="evicted"}"#) as u64
}
