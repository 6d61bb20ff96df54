//! The blocks of the guides (`docs/guide.md`, `tuning.md`, `operating.md`, `recipes.md`): rules are valid,
//! commands exist, and the commands of recipes print what the page shows.

use std::fs;
use std::path::PathBuf;

use crate::folder::Folder;
use crate::harness::trypema;
use crate::in_process::InProcess;

const PAGES: [&str; 4] = ["guide.md", "operating.md", "recipes.md", "tuning.md"];

fn page(name: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block<'p> {
    language: &'p str,
    text: &'p str,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    let parts = fenced.map(|block| block.split_once('\n').expect("a block has lines"));
    parts.map(|(language, text)| Block { language, text }).collect()
}

/// Returns the arguments of a command line for `trypema`, or `None` for other programs. A comment or a
/// redirection ends it.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let line = line.split(" #").next().unwrap_or_default().trim().trim_end_matches('&');
    let line = line.strip_prefix("cargo run --bin trypema -- ").or_else(|| line.strip_prefix("trypema "))?;
    let words = line.split_whitespace().take_while(|word| *word != ">");
    Some(words.map(|word| word.trim_matches(['\'', '"'])).collect())
}

/// Whether `actual` is the line `expected`, in which `…` stands for any text.
fn is_line(expected: &str, actual: &str) -> bool {
    match expected.split_once('…') {
        Some((start, end)) => actual.starts_with(start) && actual.ends_with(end),
        None => expected == actual,
    }
}

#[test]
fn rules_are_valid() {
    let folder = Folder::new();
    let mut checked = 0;
    for name in PAGES {
        let text = page(name);
        for block in blocks(&text).iter().filter(|block| block.language == "yaml") {
            let file = folder.file("rules.yaml", block.text);
            let ran = trypema().args(["rules", "validate"]).arg(file).output().unwrap();
            assert!(ran.status.success(), "{name}:\n{}\n{ran:?}", block.text);
            checked += 1;
        }
    }
    assert!(checked >= 2, "{checked} files of rules");
}

/// `--help` at the end makes a command print its help, unless an argument before it is unknown.
#[test]
fn commands_exist() {
    let mut checked = 0;
    for name in PAGES {
        let text = page(name);
        for block in blocks(&text).iter().filter(|block| ["sh", "console"].contains(&block.language)) {
            let lines = block.text.lines().filter_map(|line| match block.language {
                "console" => line.strip_prefix("$ "),
                _ => Some(line),
            });
            for arguments in lines.filter_map(arguments) {
                let ran = trypema().args(&arguments).arg("--help").output().unwrap();
                assert!(ran.status.success(), "{name}: {arguments:?}\n{ran:?}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 3, "{checked} commands");
}

/// Runs the console blocks of each section on a server with the rules of that section.
#[test]
fn recipes_print_what_the_page_shows() {
    let text = page("recipes.md");
    let mut compared = 0;
    for section in text.split("\n## ").skip(1) {
        let blocks = blocks(section);
        let Some(rules) = blocks.iter().find(|block| block.language == "yaml") else { continue };
        let service = InProcess::with_rules(rules.text);
        let server = service.url();
        for console in blocks.iter().filter(|block| block.language == "console") {
            for command in console.text.split("$ ").skip(1) {
                let (line, expected) = command.split_once('\n').unwrap();
                let arguments = arguments(line).expect("recipes call `trypema`");
                let ran = trypema().args(arguments).args(["--server", &server]).output().unwrap();
                let (printed, expected) = (String::from_utf8(ran.stdout).unwrap(), expected.trim_end());
                let is_same = printed.lines().count() == expected.lines().count()
                    && expected.lines().zip(printed.lines()).all(|(line, actual)| is_line(line, actual));
                assert!(is_same, "{line} printed\n{printed}and not\n{expected}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 8, "commands of recipes");
}
