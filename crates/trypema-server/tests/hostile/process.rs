//! Resources of the server process, read from `/proc`, because an attacked server may not respond.

use std::fs;

use crate::harness::Service;

/// Returns the resident memory in bytes.
pub(crate) fn memory(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Returns the number of open descriptors.
pub(crate) fn descriptors(service: &Service) -> usize {
    fs::read_dir(format!("/proc/{}/fd", service.program.id())).unwrap().count()
}

/// Asserts that the server is alive and has not panicked.
pub(crate) fn is_sound(service: &Service) {
    assert_eq!(service.get("/healthz").status, 200);
    let log = service.program.log();
    assert!(!log.contains("panicked"), "{log}");
}
