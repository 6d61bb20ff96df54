//! What a running server has on the system, and a dead one must not.

use std::fs;
use std::path::Path;

use trypema_testkit::postgres::Server;

#[derive(Debug)]
pub(crate) struct Traces {
    directory: String,
    shared_memory: String,
    processes: Vec<u32>,
}

impl Traces {
    /// Those of a server that runs now: the postmaster, its children, and what its lock file names.
    pub(crate) fn of(server: &Server) -> Self {
        let data = server.sql("SHOW data_directory").unwrap();
        let directory = data.strip_suffix("/data").unwrap().to_owned();
        let lock_file = fs::read_to_string(format!("{data}/postmaster.pid")).unwrap();
        let lines: Vec<_> = lock_file.lines().collect();
        let shared_memory = lines[6].split_whitespace().nth(1).unwrap().to_owned();
        let is_of_it = |id: &u32| {
            id.to_string() == lines[0] || status(*id, "PPid:").is_some_and(|parent| parent == lines[0])
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self { directory, shared_memory, processes: all.filter(is_of_it).collect() }
    }

    /// For another process to read.
    pub(crate) fn report(&self) -> String {
        let processes: Vec<_> = self.processes.iter().map(u32::to_string).collect();
        format!("{}\n{}\n{}.\n", self.directory, self.shared_memory, processes.join(" "))
    }

    pub(crate) fn reported(text: &str) -> Self {
        let mut lines = text.trim_end_matches(".\n").lines();
        let mut line = || lines.next().unwrap().to_owned();
        let (directory, shared_memory) = (line(), line());
        let processes = line().split(' ').map(|id| id.parse().unwrap()).collect();
        Self { directory, shared_memory, processes }
    }

    /// Those of the processes that live.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let lives = |id: &u32| status(*id, "State:").is_some_and(|state| !state.starts_with('Z'));
        self.processes.iter().copied().filter(lives).collect()
    }

    pub(crate) fn has_shared_memory(&self) -> bool {
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        all.lines().any(|line| line.split_whitespace().nth(1) == Some(&self.shared_memory))
    }

    pub(crate) fn has_directory(&self) -> bool {
        Path::new(&self.directory).exists()
    }
}

fn status(process: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().to_owned())
}
