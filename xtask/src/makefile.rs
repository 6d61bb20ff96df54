//! Checks the Makefile, which only names commands of this program.

use std::fs;

use crate::Step;
use crate::test::Tests;

/// The targets that the documentation has always named.
const TARGETS: [&str; 2] = ["test", "test-redis"];

pub(crate) fn check() -> Step {
    let text = fs::read_to_string("Makefile").map_err(|error| format!("Makefile: {error}"))?;
    check_text(&text)
}

fn check_text(text: &str) -> Step {
    let targets: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(':')).collect();
    if targets != TARGETS || !text.contains(&format!(".PHONY: {}\n", TARGETS.join(" "))) {
        return Err(format!(
            "Makefile: need the targets {TARGETS:?}, and `.PHONY` for them; has {targets:?}"
        ));
    }
    let recipes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('\t')).collect();
    let is_known = |recipe: &&str| {
        let words = recipe.strip_prefix("cargo xtask test").unwrap_or("unknown").split_whitespace();
        Tests::of(&words.collect::<Vec<_>>()).is_some()
    };
    if recipes.len() != TARGETS.len() || !recipes.iter().all(is_known) {
        return Err(format!("Makefile: need one `cargo xtask test …` for each target; has {recipes:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_passes() {
        assert_eq!(check_text(include_str!("../../Makefile")), Ok(()));
    }

    #[test]
    fn only_commands_that_exist_pass() {
        let makefile = |recipe: &str| {
            format!(".PHONY: test test-redis\ntest:\n\t{recipe}\ntest-redis:\n\tcargo xtask test redis\n")
        };
        assert_eq!(check_text(&makefile("cargo xtask test")), Ok(()));
        for wrong in
            ["cargo xtask tests", "cargo xtask test postgres", "cargo test", "cargo xtask test\n\techo ok"]
        {
            assert!(check_text(&makefile(wrong)).is_err(), "{wrong}");
        }
        assert!(check_text(".PHONY: test\ntest:\n\tcargo xtask test\n").is_err(), "a target is missing");
    }
}
