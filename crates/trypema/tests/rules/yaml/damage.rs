//! Randomly damaged files: they are rejected with a line number, or they compile.

use trypema::rules::RuleSet;
use trypema_testkit::random::Random;

use super::corpus::{self, Written};

/// The number of damaged variants per file. Each takes about a millisecond.
const DAMAGED_PER_FILE: u64 = 1_500;

/// Replacements for a part of a file.
const PIECES: [&str; 40] = [
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    ":",
    ": ",
    "-",
    "- ",
    "? ",
    ",",
    "[",
    "]",
    "{",
    "}",
    "#",
    " # ",
    "&a ",
    "*a",
    "!",
    "!!str ",
    "|",
    ">",
    "|2-\n",
    "'",
    "\"",
    "\\",
    "\"\\n\"",
    "%YAML 1.2\n",
    "---\n",
    "...\n",
    "<<: *a",
    "~",
    "0",
    "-1",
    "18446744073709551616",
    ".nan",
    "\u{feff}",
    "\u{0}é\u{85}\u{2028}",
];

#[test]
fn damaged_files_never_panic() {
    let mut refused = 0;
    for Written { name, text } in corpus::all("valid") {
        for seed in 0..DAMAGED_PER_FILE {
            let damaged = damaged(&text, &mut Random::seeded(seed));
            let Err(invalid) = RuleSet::from_yaml(&damaged, &name) else { continue };
            refused += 1;
            let lines = damaged.split(['\n', '\r']).count() as u64;
            assert!(!invalid.problems().is_empty(), "{name}, seed {seed}");
            for problem in invalid.problems() {
                let line = problem.line().unwrap_or_else(|| panic!("{name}, seed {seed}: {problem}"));
                assert!((1..=lines).contains(&line), "{name}, seed {seed}: {line}: {problem}");
                let shown = problem.to_string();
                assert!(
                    !shown.is_empty() && !shown.contains(char::is_control),
                    "{name}, seed {seed}: {shown}"
                );
            }
        }
    }
    assert!(refused > DAMAGED_PER_FILE, "hardly anything was damaged: {refused}");
}

fn damaged(text: &str, random: &mut Random) -> String {
    let mut damaged = text.to_owned();
    for _ in 0..=random.below(3) {
        damaged = if random.once_in(2) {
            with_damaged_lines(&damaged, random)
        } else {
            with_damaged_part(&damaged, random)
        };
    }
    damaged
}

/// Removes, moves, repeats or indents one line.
fn with_damaged_lines(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return String::new();
    }
    let line = lines.remove(place(lines.len(), random));
    let to = place(lines.len() + 1, random);
    match random.below(4) {
        0 => {}
        1 => lines.insert(to, line),
        2 => lines.splice(to..to, [line.clone(), line]).for_each(drop),
        _ => lines.insert(to, format!("{}{line}", " ".repeat(place(5, random)))),
    }
    lines.join("\n")
}

/// Removes a few characters, or replaces them with others or with YAML syntax.
fn with_damaged_part(text: &str, random: &mut Random) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let start = place(characters.len() + 1, random);
    let end = (start + place(6, random)).min(characters.len());
    let piece: Vec<char> = match random.below(3) {
        0 => random.pick(&PIECES).chars().collect(),
        1 => char::from_u32(random.below(0x180) as u32).into_iter().collect(),
        // A copy of another part of the file.
        _ => characters
            .iter()
            .skip(place(characters.len() + 1, random))
            .take(place(30, random))
            .copied()
            .collect(),
    };
    characters.splice(start..end, piece);
    characters.into_iter().collect()
}

/// A random index below `count`.
fn place(count: usize, random: &mut Random) -> usize {
    random.below(count as u64) as usize
}
