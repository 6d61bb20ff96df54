//! Manages stored rules through a running server, which authenticates the user.

use std::io::Write;
use std::path::Path;

use http::Method;
use trypema::rules::{RuleSet, Rules};

use crate::cli::confirm::ChangeArgs;
use crate::cli::difference::{difference, line};
use crate::cli::service::{AdminService, Call, percent_encode};
use crate::cli::{elements, print, text};

pub(super) fn apply(file: &Path, change: &ChangeArgs) -> Result<(), String> {
    // Validate here first: only the file has line numbers for error messages.
    RuleSet::read(file).map_err(|invalid| invalid.to_string())?;
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let rules = Rules::from_yaml(&text).map_err(|invalid| invalid.to_string())?;
    let rules = serde_json::to_value(rules).map_err(|error| error.to_string())?;
    change.make(&Method::PUT, "/v1/ruleset", &rules)
}

pub(super) fn export(revision: Option<u64>, service: &AdminService) -> Result<(), String> {
    let path = match revision {
        Some(revision) => format!("/v1/ruleset?revision={revision}"),
        None => "/v1/ruleset".to_owned(),
    };
    let text = service.text(&Call { accept: "application/yaml", ..Call::new(Method::GET, &path) })?;
    // A failed write must be an error: nobody may take a partial export for a backup.
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("writing the rules: {error}"))
}

pub(super) fn history(about: Option<&str>, limit: u32, service: &AdminService) -> Result<(), String> {
    let mut path = format!("/v1/ruleset/history?limit={limit}");
    if let Some(about) = about {
        path.push_str(&format!("&about={}", percent_encode(about)));
    }
    let response = service.call(&Call::new(Method::GET, &path))?;
    for entry in elements(&response["entries"]) {
        let (at, who) = (text(&entry["changed_at"]), text(&entry["changed_by"]));
        print(&line(&format!("revision {} by {who} at {at}", entry["revision"])));
        print(&difference(entry));
    }
    Ok(())
}

pub(super) fn candidates(service: &AdminService) -> Result<(), String> {
    let response = service.call(&Call::new(Method::GET, "/v1/candidates"))?;
    if elements(&response["candidates"]).next().is_none() {
        print("there are no candidates\n");
    }
    for report in elements(&response["candidates"]) {
        let (rule, candidate) = (text(&report["rule"]), text(&report["candidate"]));
        print(&line(&format!("{candidate} for {rule}, share {}", report["share"])));
        for (name, label) in [
            ("both_allowed", "both allowed"),
            ("both_denied", "both denied"),
            ("would_deny", "only the candidate would have denied"),
            ("would_allow", "only the live rule denied (the candidate would have allowed)"),
        ] {
            print(&format!("    {label}: {}\n", report[name]));
        }
    }
    Ok(())
}
