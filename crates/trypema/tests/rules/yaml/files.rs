//! Files that can be read, and files that cannot.

use std::path::PathBuf;

use trypema::rules::RuleSet;

use super::corpus;

/// A file that is deleted when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("trypema-rules-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn refusal(path: &PathBuf) -> String {
    let error = RuleSet::read(path).unwrap_err().to_string();
    let name = path.display().to_string();
    error.strip_prefix(&name).unwrap_or_else(|| panic!("{error} does not name {name}")).to_owned()
}

#[test]
fn a_file_is_read() {
    let path = corpus::root().join("testdata/rules/valid/login_guard.yaml");
    assert_eq!(RuleSet::read(path).unwrap().len(), 3);
}

#[test]
fn problems_name_the_file_and_the_line() {
    let file = Scratch::new("unknown", b"rules: []\nrule: []\n");
    assert_eq!(
        refusal(&file.0),
        ":2: rule: unknown field: need one of units, rules, overrides, allow, block"
    );
}

#[test]
fn what_is_not_utf8_is_refused_with_its_line() {
    let file = Scratch::new("latin1", b"rules:\n  - id: caf\xe9\n");
    assert_eq!(refusal(&file.0), ":2: not valid UTF-8");
    let utf16: Vec<u8> = "\u{feff}rules: []".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(refusal(&Scratch::new("utf16", &utf16).0), ":1: not valid UTF-8");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let absent = std::env::temp_dir().join("trypema-rules-that-nobody-wrote.yaml");
    assert!(refusal(&absent).starts_with(": cannot be read: "), "{}", refusal(&absent));
    assert!(refusal(&std::env::temp_dir()).starts_with(": cannot be read: "));
}

#[test]
fn a_file_that_never_ends_is_refused() {
    let endless = PathBuf::from("/dev/zero");
    if endless.exists() {
        assert_eq!(refusal(&endless), ": too large: need at most 16777216 bytes");
    }
}
