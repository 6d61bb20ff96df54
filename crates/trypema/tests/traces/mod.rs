//! The traces under `testdata/traces`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::path::PathBuf;

use trypema_testkit::trace::{Provider, Trace, replay};

/// All traces, sorted by name.
pub(crate) fn all() -> Vec<Trace> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "trace")).collect();
    files.sort();
    files.iter().map(read).collect()
}

fn read(path: &PathBuf) -> Trace {
    let name = path.file_name().unwrap().to_string_lossy();
    let text = std::fs::read_to_string(path).unwrap();
    Trace::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Panics with every difference of every trace at once.
pub(crate) fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{} answers differ:\n{}", failures.len(), failures.join("\n"));
}

/// The differences between the results of `provider` and the trace.
pub(crate) fn failures(trace: &Trace, provider: &mut dyn Provider) -> Vec<String> {
    match replay(trace, provider) {
        Ok(mismatches) => mismatches.iter().map(ToString::to_string).collect(),
        Err(unsupported) => vec![format!("{}: {unsupported}", trace.name)],
    }
}
