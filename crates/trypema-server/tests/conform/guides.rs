//! The blocks of the README and the guides (`docs/guide.md`, `tuning.md`, `operating.md`, `recipes.md`): rules
//! are valid, commands exist, and the commands of the README and of recipes print what the page shows.

use std::fs;
use std::path::PathBuf;

use crate::folder::Folder;
use crate::harness::{Service, trypema};
use crate::in_process::InProcess;

const PAGES: [&str; 5] = ["../README.md", "guide.md", "operating.md", "recipes.md", "tuning.md"];

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

/// The README sends six requests to a server with nothing configured, and shows the first and the last answer.
#[test]
fn the_readme_shows_the_first_denial() {
    let text = page("../README.md");
    let blocks = blocks(&text);
    let console = blocks.iter().find(|block| block.language == "console").unwrap();
    let mut quoted = console.text.split('\'').skip(1).step_by(2);
    let path = quoted.next().unwrap().strip_prefix("http://127.0.0.1:8080").unwrap();
    let body = quoted.next().unwrap();
    let (_, shown) = console.text.split_once("done\n").unwrap();
    let (first, last) = shown.split_once("…\n").unwrap();

    let service = Service::start(&[]);
    let mut client = service.client();
    let replies: Vec<_> = (0..6).map(|_| client.send("POST", path, &[], body)).collect();
    for (shown, reply) in [(first, &replies[0]), (last, &replies[5])] {
        let mut lines = shown.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        assert_eq!(status, reply.status.to_string());
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            // The wait is rounded up, so a slow machine shows one second less at most.
            let a_second_later = value.replace("12", "11");
            let actual = reply.header(name);
            assert!([Some(value), Some(&*a_second_later)].contains(&actual), "{line}, not {actual:?}");
        }
    }
}
