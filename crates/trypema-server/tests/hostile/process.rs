//! What the service takes of the machine, and what it says of itself, without asking it: an attacked service may not answer.

use std::fs;

use crate::harness::Service;

/// Bytes in memory.
pub(crate) fn memory(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Open descriptors.
pub(crate) fn descriptors(service: &Service) -> usize {
    fs::read_dir(format!("/proc/{}/fd", service.program.id())).unwrap().count()
}

/// It is alive, and never panicked.
pub(crate) fn is_sound(service: &Service) {
    assert_eq!(service.get("/healthz").status, 200);
    let log = service.program.log();
    assert!(!log.contains("panicked"), "{log}");
}
