//! `trypema rules`.

use std::fs;
use std::path::PathBuf;

use super::run;
use crate::folder::Folder;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files of a folder of rules.
fn files(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join("testdata/rules").join(name)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

#[test]
fn valid_files_are_found_valid() {
    let files = files("valid");
    assert!(files.len() > 3);
    let ran = run(["rules".as_ref(), "validate".as_ref()]
        .into_iter()
        .chain(files.iter().map(|file| file.as_os_str())));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    let told: Vec<&str> = ran.out.lines().filter(|line| !line.contains(": hint: ")).collect();
    assert_eq!(told.len(), files.len());
    assert!(told.iter().all(|line| line.ends_with("rules are valid")), "{}", ran.out);
}

#[test]
fn hints_are_no_errors() {
    let folder = Folder::new();
    let file = folder.file(
        "rules.yaml",
        "rules:\n  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}\n",
    );
    let ran = run(["rules".as_ref(), "validate".as_ref(), file.as_os_str()]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let hint = ran.out.lines().nth(1).unwrap();
    let parts = ["rules.yaml: hint: ", "`user`", "not limited by `per-user`", "if_missing"];
    assert!(parts.iter().all(|part| hint.contains(part)), "{hint}");
}

/// Every file gives its expected errors, with their lines, in the comments at its start.
#[test]
fn invalid_files_are_refused_with_line_and_reason() {
    let files = files("invalid");
    assert!(files.len() > 30);
    for file in files {
        let ran = run(["rules".as_ref(), "validate".as_ref(), file.as_os_str()]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", file.display());
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        for expected in text.lines().filter_map(|line| line.strip_prefix("# expect: ")) {
            let (line, reason) = expected.split_once(": ").unwrap();
            let named = format!("{}:{line}: ", file.display());
            let is_told = ran.err.lines().any(|told| told.contains(&named) && told.contains(reason));
            assert!(is_told, "{} does not say {expected:?}:\n{}", file.display(), ran.err);
        }
    }
}

#[test]
fn one_bad_file_of_several_is_enough() {
    let folder = Folder::new();
    let good = folder.file("good.yaml", "rules: []\n");
    let bad = folder.file(
        "bad.yaml",
        "rules:\n  - {id: a b, scope: global, strategy: {fixed_window: {limit: 1, window: 1h}}}\n",
    );
    let missing = folder.path().join("missing.yaml");
    let ran =
        run(["rules".as_ref(), "validate".as_ref(), bad.as_os_str(), good.as_os_str(), missing.as_os_str()]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("good.yaml: 0 rules are valid"), "{ran:?}");
    assert!(ran.err.contains("bad.yaml:2: rules[0].id") && ran.err.contains("missing.yaml"), "{ran:?}");
}

#[test]
fn the_schema_is_the_one_that_editors_are_given() {
    let ran = run(["rules", "schema"]);
    assert_eq!(ran.code, Some(0));
    let kept = fs::read_to_string(repository().join("docs/rules.schema.json")).unwrap();
    assert_eq!(ran.out, kept);
}
