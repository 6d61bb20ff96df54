//! Setting names in `deploy/`: each must be one of `trypema serve`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::deployed;
use crate::harness::trypema;

use super::run;

/// Files in which every flag belongs to the server.
const ONLY_OUR_FLAGS: [&str; 6] = [
    "nginx/trypema.conf",
    "traefik/dynamic.yaml",
    "systemd/trypema.service",
    "prometheus/alerts.yaml",
    "prometheus/alerts.test.yaml",
    "trypema/trypema.yaml",
];

#[test]
fn variables_are_those_of_the_service() {
    let help = run(trypema().args(["serve", "--help"]));
    let mut known = words(&help, "TRYPEMA_");
    // The hook for LiteLLM is a client with settings of its own, which it lists at its top.
    let hook = crate::text_of("litellm/trypema_hook.py");
    known.extend(words(hook.split("\"\"\"").nth(1).unwrap(), "TRYPEMA_"));
    let mut found = BTreeSet::new();
    for_each_file(&deployed(""), &mut |text| found.extend(words(text, "TRYPEMA_")));
    assert!(found.contains("TRYPEMA_LISTEN"), "{found:?}");
    assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn flags_are_those_of_the_service() {
    let help = run(trypema().args(["serve", "--help"]));
    let known = words(&help, "--");
    for name in ONLY_OUR_FLAGS {
        let found = words(&crate::text_of(name), "--");
        assert!(!found.is_empty(), "{name}");
        assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
    }
}

/// Returns the words that begin with `start`.
fn words(text: &str, start: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    let words = text.split(|character| !is_part(character));
    let words = words
        .filter(|word| word.strip_prefix(start).is_some_and(|rest| rest.starts_with(char::is_alphabetic)));
    words.map(str::to_owned).collect()
}

fn for_each_file(directory: &Path, look: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            for_each_file(&path, look);
        } else {
            look(&fs::read_to_string(path).unwrap());
        }
    }
}
