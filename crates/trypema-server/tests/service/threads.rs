//! The processor time of the server's threads, read from `/proc`.

use std::collections::BTreeMap;
use std::fs;

use crate::harness::Service;

/// Returns the processor time of the server's threads in nanoseconds, by their names.
pub fn processor_time(service: &Service) -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{}/task", service.program.id())).unwrap() {
        let task = task.unwrap().path();
        // A thread may end meanwhile.
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let nanoseconds = read("schedstat").split(' ').next().and_then(|time| time.parse::<u64>().ok());
        *times.entry(read("comm").trim().to_owned()).or_default() += nanoseconds.unwrap_or(0);
    }
    times
}

/// Asserts that `work` keeps the thread `name` busier than all other threads of the server together.
pub fn is_done_by(name: &str, service: &Service, work: impl Fn()) {
    // The first run may start threads, and read pages for the first time.
    work();
    let before = processor_time(service);
    work();
    let mut spent = processor_time(service);
    for (name, time) in &mut spent {
        *time = time.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    let others: u64 = spent.iter().filter(|(other, _)| *other != name).map(|(_, time)| time).sum();
    println!("{name}: {spent:?}");
    assert!(spent.get(name).copied().unwrap_or(0) > others, "{name}: {spent:?}");
}
