//! Each file has the effect that it is there for.

use std::collections::BTreeMap;

use trypema::rules::{InvalidRules, RuleSet, Rules};

use super::corpus::{self, Written};

/// The minimum number of invalid files. The issue requires 40.
const FEWEST_INVALID_FILES: usize = 50;

#[test]
fn invalid_files_are_refused_for_their_reasons() {
    let files = corpus::all("invalid");
    assert!(files.len() >= FEWEST_INVALID_FILES);
    let wrong: Vec<String> = files.iter().filter_map(difference).collect();
    assert!(wrong.is_empty(), "{} of {} files:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

/// The difference between the problems of a file and the expected ones, if any.
fn difference(file: &Written) -> Option<String> {
    let expected: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("# expect: ")).collect();
    let found = found(&corpus::refusal(&file.text));
    let is_met = |(found, expected): (&String, &&str)| {
        let (line, message) = expected.split_once(": ").unwrap();
        found.split_once(": ").is_some_and(|(at, text)| at == line && text.contains(message))
    };
    let are_met = expected.len() == found.len() && found.iter().zip(&expected).all(is_met);
    let is_readable = found.iter().all(|problem| !problem.contains(char::is_control));
    (!are_met || !is_readable || expected.is_empty())
        .then(|| format!("{}: expected {expected:#?}, found {found:#?}", file.name))
}

/// The lines and messages of all problems.
fn found(invalid: &InvalidRules) -> Vec<String> {
    let line = |line: Option<u64>| line.map_or_else(|| "no line".to_owned(), |line| line.to_string());
    invalid.problems().iter().map(|problem| format!("{}: {problem}", line(problem.line()))).collect()
}

#[test]
fn every_file_has_a_message_of_its_own() {
    let mut messages: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for file in corpus::all("invalid") {
        // The message must differ even without the line and the rule's id.
        let invalid = corpus::refusal(&file.text);
        let message = invalid
            .problems()
            .iter()
            .map(|problem| format!("{}: {}", problem.field(), problem.reason()))
            .collect();
        if let Some(other) = messages.insert(message, file.name.clone()) {
            panic!("{} and {other} have the same message", file.name);
        }
    }
}

#[test]
fn messages_read_like_others() {
    for file in corpus::all("invalid") {
        let invalid = corpus::refusal(&file.text);
        for problem in invalid.problems() {
            let reason = problem.reason();
            assert!(!reason.is_empty() && !reason.ends_with('.'), "{}: {reason}", file.name);
            assert!(!reason.starts_with(char::is_uppercase), "{}: {reason}", file.name);
        }
        let shown = invalid.to_string();
        assert_eq!(shown.lines().count(), invalid.problems().len(), "{}", file.name);
        assert!(shown.lines().all(|line| line.starts_with("rules.yaml:")), "{}: {shown}", file.name);
    }
}

#[test]
fn valid_files_compile() {
    for Written { name, text } in corpus::all("valid") {
        let rules = Rules::from_yaml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let set = RuleSet::from_yaml(&text, &name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(set.len(), rules.rules.len(), "{name}");
    }
}

#[test]
fn rules_survive_being_written_and_read() {
    for Written { name, text } in corpus::all("valid") {
        let rules = Rules::from_yaml(&text).unwrap();
        let json = serde_json::to_string_pretty(&rules).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&json).unwrap(), rules, "{name}");
        // JSON is also YAML.
        assert_eq!(Rules::from_yaml(&json).unwrap(), rules, "{name}");
    }
}

#[test]
fn line_ends_and_byte_order_marks_change_nothing() {
    for Written { name, text } in corpus::all("valid") {
        let rules = Rules::from_yaml(&text).unwrap();
        for same in [text.replace('\n', "\r\n"), text.replace('\n', "\r"), format!("\u{feff}{text}")] {
            assert_eq!(Rules::from_yaml(&same).unwrap(), rules, "{name}");
        }
    }
    for Written { name, text } in corpus::all("invalid") {
        let same = corpus::refusal(&text.replace('\n', "\r\n"));
        assert_eq!(found(&same), found(&corpus::refusal(&text)), "{name}");
    }
}
