//! The files under `testdata/rules`.

use std::path::PathBuf;

use trypema::rules::{InvalidRules, RuleSet};

pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The files of a folder, sorted by name.
pub(crate) fn all(folder: &str) -> Vec<Written> {
    let folder = root().join("testdata/rules").join(folder);
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<Written> = paths
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            Written { text: std::fs::read_to_string(&path).unwrap(), name }
        })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The error of a text that must be rejected.
pub(crate) fn refusal(text: &str) -> InvalidRules {
    match RuleSet::from_yaml(text, "rules.yaml") {
        Ok(_) => panic!("accepted: {text}"),
        Err(invalid) => invalid,
    }
}
