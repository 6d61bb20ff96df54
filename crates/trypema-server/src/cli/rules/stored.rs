//! Manages stored rules through a running server, which authenticates the user.

use std::io::Write;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use trypema::rules::{RuleSet, Rules};

use crate::cli::confirm::{Confirmation, print_done, print_unchanged};
use crate::cli::difference::{difference, line};
use crate::cli::print;
use crate::cli::service::{AdminService, Call, percent_encode};

pub(super) fn apply(file: &Path, confirmation: Confirmation, service: &AdminService) -> Result<(), String> {
    // Validate here first: only the file has line numbers for error messages.
    RuleSet::read(file).map_err(|invalid| invalid.to_string())?;
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let rules = Rules::from_yaml(&text).map_err(|invalid| invalid.to_string())?;
    let rules = serde_json::to_value(rules).map_err(|error| error.to_string())?;
    apply_change(
        &ChangeRequest { method: Method::PUT, path: "/v1/ruleset".to_owned(), body: rules },
        confirmation,
        service,
    )
}

pub(super) fn revert(
    revision: u64,
    confirmation: Confirmation,
    service: &AdminService,
) -> Result<(), String> {
    let (path, body) = ("/v1/ruleset/revert".to_owned(), json!({"to": revision}));
    apply_change(&ChangeRequest { method: Method::POST, path, body }, confirmation, service)
}

pub(super) fn promote(
    candidate: &str,
    confirmation: Confirmation,
    service: &AdminService,
) -> Result<(), String> {
    let path = format!("/v1/rules/{}/promote", percent_encode(candidate));
    apply_change(&ChangeRequest { method: Method::POST, path, body: json!({}) }, confirmation, service)
}

/// A change that supports a dry run.
struct ChangeRequest {
    method: Method,
    path: String,
    body: Value,
}

/// Shows the changes of a dry run, then applies them to exactly the revision that they were shown for.
fn apply_change(
    change: &ChangeRequest,
    confirmation: Confirmation,
    service: &AdminService,
) -> Result<(), String> {
    let ChangeRequest { method, path, body } = change;
    let dry_run_path = format!("{path}?dry_run=true");
    let call = |path, revision| Call { body: Some(body), revision, ..Call::new(method.clone(), path) };
    let shown = service.call(&call(&dry_run_path, None))?;
    let revision = shown["revision"].as_u64().ok_or("the response has no revision")?;
    let changes: Vec<&Value> = shown["changes"].as_array().into_iter().flatten().collect();
    if changes.is_empty() {
        print_unchanged(Some(revision));
        return Ok(());
    }
    if confirmation.ask(&changes, Some(revision))? {
        print_done(changes.len(), &service.call(&call(path, Some(revision)))?);
    }
    Ok(())
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
    for entry in response["entries"].as_array().into_iter().flatten() {
        let [at, who] = ["changed_at", "changed_by"].map(|name| entry[name].as_str().unwrap_or_default());
        print(&line(&format!("revision {} by {who} at {at}", entry["revision"])));
        print(&difference(entry));
    }
    Ok(())
}

pub(super) fn candidates(service: &AdminService) -> Result<(), String> {
    let response = service.call(&Call::new(Method::GET, "/v1/candidates"))?;
    let reports: Vec<&Value> = response["candidates"].as_array().into_iter().flatten().collect();
    if reports.is_empty() {
        print("there are no candidates\n");
    }
    for report in reports {
        let [rule, candidate] = ["rule", "candidate"].map(|name| report[name].as_str().unwrap_or_default());
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
