//! Finds the top-level modules that the files of a crate mention.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use super::read;

/// The locations where one module imports another, by importer and imported module.
pub(super) type Imports = BTreeMap<(String, String), Vec<String>>;

/// Returns the modules that a crate's root declares.
pub(super) fn modules(root: &str) -> impl Iterator<Item = &str> {
    root.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
}

/// Returns all imports between top-level modules, outside of tests.
pub(super) fn imports_of(source: &Path, root: &str) -> Result<Imports, String> {
    let mut imports = Imports::new();
    visit(source, |place, module, statement| {
        for name in names(statement, module.len()) {
            let imported = exporter(root, &name).unwrap_or(name);
            if imported != module[0] {
                imports.entry((module[0].clone(), imported)).or_default().push(place.to_owned());
            }
        }
    })?;
    Ok(imports)
}

/// Returns the locations where a top-level module names one of these crates, outside of tests.
pub(super) fn uses_of(source: &Path, crates: &[&str]) -> Result<Imports, String> {
    let mut uses = Imports::new();
    visit(source, |place, module, statement| {
        for name in crates.iter().filter(|name| names_crate(statement, name)) {
            uses.entry((module[0].clone(), (*name).to_owned())).or_default().push(place.to_owned());
        }
    })?;
    Ok(uses)
}

/// Whether a statement names a crate, and not a module of the same name.
fn names_crate(statement: &str, name: &str) -> bool {
    let is_path = |before: char| before.is_alphanumeric() || before == '_' || before == ':';
    statement.match_indices(&format!("{name}::")).any(|(start, _)| !statement[..start].ends_with(is_path))
}

/// Calls `visit` with every statement outside of tests: its place, the path of its module, and its text.
fn visit(source: &Path, mut visit: impl FnMut(&str, &[String], &str)) -> Result<(), String> {
    let mut folders = VecDeque::from([source.to_owned()]);
    while let Some(folder) = folders.pop_front() {
        let entries = folder.read_dir().map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            if path.is_dir() {
                folders.push_back(path);
                continue;
            }
            let Some(module) = module_path(source, &path) else { continue };
            let text = read(&path)?;
            for (index, statement) in statements(&text) {
                visit(&format!("  {}:{}", path.display(), index + 1), &module, &statement);
            }
        }
    }
    Ok(())
}

/// Returns the path of a file's module, or `None` for the crate's root, for tests and for other kinds of
/// files.
fn module_path(source: &Path, file: &Path) -> Option<Vec<String>> {
    let path: PathBuf = file.strip_prefix(source).ok()?.to_str()?.strip_suffix(".rs")?.into();
    let module: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_left_out = |part: &String| ["lib", "main"].contains(&part.as_str()) || part.ends_with("tests");
    (!module.iter().any(is_left_out)).then_some(module)
}

/// Returns the statements before the tests, without comments. A `use` with braces is joined into one
/// statement.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("mod tests {"));
    for (index, line) in lines {
        let code = line.split("//").next().unwrap_or_default().trim();
        match statements.last_mut() {
            Some((_, open)) if is_open => open.push_str(code),
            _ => statements.push((index, code.to_owned())),
        }
        let last = statements.last().map_or("", |(_, statement)| statement);
        is_open = last.contains("use ") && last.contains('{') && !last.contains(';');
    }
    statements
}

/// Returns the top-level names that a statement mentions, in a module at this depth below the root.
fn names(statement: &str, depth: usize) -> Vec<String> {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut names = Vec::new();
    for prefix in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (start, _) in statement.match_indices(&prefix) {
            if statement[..start].ends_with(is_letter) || statement[..start].ends_with("super::") {
                continue;
            }
            let rest = &statement[start + prefix.len()..];
            let mut depth_of_braces = 0;
            let group = rest.strip_prefix('{');
            for part in group.unwrap_or(rest).split_inclusive([',', '{', '}', ';']) {
                if depth_of_braces == 0 {
                    let name: String =
                        part.trim_start().chars().take_while(|letter| is_letter(*letter)).collect();
                    names.extend(Some(name).filter(|name| !name.is_empty()));
                }
                match part.chars().last() {
                    Some('{') => depth_of_braces += 1,
                    Some('}') => depth_of_braces -= 1,
                    _ => {}
                }
                if group.is_none() || depth_of_braces < 0 {
                    break;
                }
            }
        }
    }
    names
}

/// Returns the module whose item the crate's root exports under this name.
fn exporter(root: &str, name: &str) -> Option<String> {
    let uses = root.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()?.split_once("::"));
    let names = |list: &str| list.split([',', '{', '}', ' ', '\n']).any(|exported| exported == name);
    uses.filter(|(_, list)| names(list)).map(|(module, _)| module.to_owned()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_under_the_root() {
        assert_eq!(names("use crate::app::App;", 1), ["app"]);
        assert_eq!(names("use crate::{app::{App, Mode},net, rules::book};", 1), ["app", "net", "rules"]);
        assert_eq!(names("let a = crate::clock::now() + crate::jitter::below(b);", 2), ["clock", "jitter"]);
        assert_eq!(names("use super::app::App;", 1), ["app"]);
        assert_eq!(names("use super::book::Book;", 2), [""; 0]);
        assert_eq!(names("use super::super::app::App;", 2), ["app"]);
    }

    #[test]
    fn crates_are_told_from_modules() {
        assert!(names_crate("use http::Method;", "http") && names_crate("-> http::Uri", "http"));
        assert!(
            !names_crate("use trypema::http::Problem;", "http") && !names_crate("use hyper_http::X;", "http")
        );
    }

    #[test]
    fn tests_and_comments_are_left_out() {
        let text = "//! See crate::a.\nuse crate::{\n    b,\n    c,\n};\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}";
        let mentioned =
            statements(text).iter().flat_map(|(_, statement)| names(statement, 1)).collect::<Vec<_>>();
        assert_eq!(mentioned, ["b", "c"]);
    }

    #[test]
    fn exports_of_the_root_belong_to_their_modules() {
        let root = "pub use app::App;\npub use config::{\n    Config, Tls,\n};";
        assert_eq!(exporter(root, "Tls").unwrap(), "config");
        assert_eq!(exporter(root, "App").unwrap(), "app");
        assert_eq!(exporter(root, "config"), None);
    }
}
