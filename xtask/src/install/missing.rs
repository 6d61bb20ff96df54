//! The list of programs that are missing.

/// A program that is missing and could not be installed.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) program: String,
    /// The command that installs it.
    pub(super) remedy: String,
    /// The reason why this command could not be run here.
    pub(super) why: String,
}

/// Returns the message that names every missing program.
pub(super) fn list(missing: &[Missing]) -> String {
    let mut text = format!("{} programs are missing. Install them, then try again:\n", missing.len());
    for Missing { program, remedy, why } in missing {
        let why = why.trim().replace('\n', " ");
        text.push_str(&format!("\n  {program}\n    {remedy}\n    (not done here: {why})\n"));
    }
    let mut packages: Vec<&str> =
        missing.iter().filter_map(|missing| missing.remedy.strip_prefix(APT)).collect();
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        text.push_str(&format!("\nAll packages of Debian at once:\n\n  {APT}{}\n", packages.join(" ")));
    }
    text.push_str("\nNothing was tested.");
    text
}

/// The beginning of the command that installs packages of Debian.
pub(super) const APT: &str = "apt-get install ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_named_and_each_package_once() {
        let missing = [
            ("postgres", "apt-get install postgresql"),
            ("LiteLLM", "python3 -m pip install litellm"),
            ("psql", "apt-get install postgresql"),
            ("caddy", "apt-get install caddy"),
        ];
        let missing = missing.map(|(program, remedy)| Missing {
            program: program.to_owned(),
            remedy: remedy.to_owned(),
            why: "there is\nno network\n".to_owned(),
        });
        let list = list(&missing);
        for Missing { program, remedy, .. } in &missing {
            assert!(list.contains(&format!("\n  {program}\n    {remedy}\n")), "{list}");
        }
        assert!(list.contains("(not done here: there is no network)"), "{list}");
        assert!(list.contains("\n  apt-get install caddy postgresql\n"), "{list}");
    }
}
