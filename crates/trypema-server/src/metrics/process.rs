//! Metrics of the process, under the names that Prometheus client libraries use.

use std::fs;

use super::{Exposition, MetricType};

pub(super) fn write(text: &mut Exposition, started_at_s: u64) {
    text.family("trypema_build_info", MetricType::Gauge, "The version of the server.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.gauge("process_start_time_seconds", "Unix time at which the process started.", started_at_s);
    if let Some(bytes) = resident_bytes() {
        text.gauge("process_resident_memory_bytes", "Resident memory.", bytes);
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open file descriptors.", descriptors.count());
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
