//! `trypema check` and `trypema explain`: send a request to a server from a shell.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use trypema::RateLimiter;
use trypema::rules::{Engine, RuleSet};

use super::service::{AdminService, Call, CheckService};
use super::{failed, print};
use crate::attributes::request_of;
use crate::service::json::RequestDescription;
use crate::service::report::ExplainResponse;

/// Check whether a request may proceed
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    service: CheckService,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
    /// Only check: nothing is spent
    #[arg(long)]
    peek: bool,
}

/// Show what every rule decides about a request
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    service: AdminService,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
    /// Explain with the rules of this file instead of a server, as if nothing had been spent
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// The request to check or explain.
#[derive(Debug, clap::Args)]
pub(super) struct RequestArgs {
    /// Attributes of the request: user=ann endpoint=/search, or as JSON: '{"user": "ann"}'
    #[arg(value_name = "NAME=VALUE", value_parser = attributes)]
    attributes: Vec<GivenAttributes>,
    /// Cost of the request: a number of requests, or of another unit, as in tokens=4200; may be repeated
    #[arg(long, value_name = "[UNIT=]NUMBER", value_parser = cost)]
    cost: Vec<GivenCost>,
    /// Further attribute set, checked together with the attributes above, as JSON: '{"attributes": {"tenant":
    /// "acme"}, "costs": {"tokens": 20}}'; may be repeated
    #[arg(long, value_name = "JSON", value_parser = further_set)]
    set: Vec<Value>,
}

/// A cost in one unit.
#[derive(Debug, Clone)]
pub(super) struct GivenCost {
    unit: String,
    cost: u64,
}

pub(super) fn cost(text: &str) -> Result<GivenCost, String> {
    let (unit, number) = text.split_once('=').unwrap_or(("requests", text));
    let cost = number.parse().map_err(|_| "need a whole number, 0 or more, as in 5 or tokens=4200")?;
    Ok(GivenCost { unit: unit.to_owned(), cost })
}

fn further_set(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(set)) => Ok(Value::Object(set)),
        Ok(_) => Err("need a JSON object with attributes and costs".to_owned()),
        Err(error) => Err(format!("need a JSON object with attributes and costs: {error}")),
    }
}

/// The attributes of one argument: one of `NAME=VALUE`, or those of a JSON object.
#[derive(Debug, Clone)]
pub(super) struct GivenAttributes(Vec<(String, String)>);

pub(super) fn attributes(text: &str) -> Result<GivenAttributes, String> {
    if text.trim_start().starts_with('{') {
        let object: BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|error| format!("need a JSON object of texts, as in {{\"user\": \"ann\"}}: {error}"))?;
        return Ok(GivenAttributes(object.into_iter().collect()));
    }
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok(GivenAttributes(vec![(name.to_owned(), value.to_owned())]))
        }
        _ => Err("need a name and a value, as in user=ann, or a JSON object".to_owned()),
    }
}

impl Check {
    pub(super) fn run(self) -> ExitCode {
        let response = self.request.to_json().and_then(|mut request| {
            if self.peek {
                request["mode"] = json!("peek");
            }
            self.service.call(&Call::post("/v1/check", &request))
        });
        match response {
            Err(error) => failed(error),
            Ok(response) => {
                show(&response, self.json);
                if response["allowed"] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
        }
    }
}

impl Explain {
    pub(super) fn run(self) -> ExitCode {
        let response = self.request.to_json().and_then(|request| match &self.rules {
            Some(file) => explain_with_file(file, &request),
            None => self.service.call(&Call::post("/v1/explain", &request)),
        });
        match response {
            Err(error) => failed(error),
            Ok(response) => {
                show(&response, self.json);
                ExitCode::SUCCESS
            }
        }
    }
}

impl RequestArgs {
    pub(super) fn to_json(&self) -> Result<Value, String> {
        let costs = costs_of(&self.cost)?;
        let is_given = !self.attributes.is_empty();
        if !is_given && !self.set.is_empty() && !costs.is_empty() {
            return Err(
                "--cost is for the attributes NAME=VALUE; write the costs of a --set into it".to_owned()
            );
        }
        let mut first = json!({"attributes": attributes_of(&self.attributes)?});
        if !costs.is_empty() {
            first["costs"] = Value::Object(costs);
        }
        if self.set.is_empty() {
            return Ok(first);
        }
        // Without attributes, the request consists of the further sets.
        let sets: Vec<&Value> = is_given.then_some(&first).into_iter().chain(&self.set).collect();
        Ok(json!({"sets": sets}))
    }
}

/// Returns attributes as an object. Fails if one is given twice.
pub(super) fn attributes_of(given: &[GivenAttributes]) -> Result<Map<String, Value>, String> {
    let mut attributes = Map::new();
    for (name, value) in given.iter().flat_map(|given| &given.0) {
        if attributes.insert(name.clone(), json!(value)).is_some() {
            return Err(format!("attribute {name:?} is given twice"));
        }
    }
    Ok(attributes)
}

/// Returns costs as an object. Fails if a unit is given twice.
pub(super) fn costs_of(given: &[GivenCost]) -> Result<Map<String, Value>, String> {
    let mut costs = Map::new();
    for GivenCost { unit, cost } in given {
        if costs.insert(unit.clone(), json!(cost)).is_some() {
            return Err(format!("the cost in {unit:?} is given twice"));
        }
    }
    Ok(costs)
}

/// Prints a response, as JSON if `is_json` is set, otherwise as text.
fn show(response: &Value, is_json: bool) {
    print(&if is_json { format!("{response:#}\n") } else { report(response) });
}

/// Returns one line such as "denied by per-user; try again in 2000 ms".
fn summary(response: &Value) -> String {
    let outcome = text(&response["outcome"]);
    let by = match (&response["decided_by"], &response["listed_by"]) {
        (Value::String(rule), _) => format!(" by {rule}"),
        (_, Value::String(attribute)) => {
            format!(" by the list entry {attribute} = {:?}", text(&response["listed_entry"]))
        }
        _ => String::new(),
    };
    let wait = match &response["retry_after_ms"] {
        Value::Null => "; retrying will not succeed".to_owned(),
        wait if wait.as_u64() == Some(0) => String::new(),
        wait => format!("; try again in {wait} ms"),
    };
    format!("{outcome}{by}{wait}")
}

/// Returns the summary and one line per rule.
pub(super) fn report(response: &Value) -> String {
    let mut lines = vec![summary(response)];
    lines.extend(rules_of(response).map(|rule| format!("  {rule}")));
    let skipped = response["skipped"].as_array().into_iter().flatten();
    lines.extend(skipped.map(|rule| {
        format!("  {}{}: skipped, {}", text(&rule["rule"]), name_suffix(rule), text(&rule["reason"]))
    }));
    let others = response["not_applying"].as_array().into_iter().flatten();
    lines.extend(others.map(|rule| {
        format!("  {}{}: does not apply, {}", text(&rule["rule"]), name_suffix(rule), text(&rule["reason"]))
    }));
    lines.join("\n") + "\n"
}

fn rules_of(response: &Value) -> impl Iterator<Item = String> {
    response["rules"].as_array().into_iter().flatten().map(|rule| {
        let says = if rule["allowed"] == json!(true) { "allows" } else { "denies" };
        let note = if rule["action"] == json!("log_only") { " (only logged)" } else { "" };
        if let Value::String(attribute) = &rule["missing_attribute"] {
            let (id, then) = (text(&rule["rule"]), text(&rule["if_missing"]));
            let name = name_suffix(rule);
            return format!("{id}{name} {says}{note}: the request has no {attribute:?} (if_missing: {then})");
        }
        if let Value::String(unit) = &rule["missing_unit"] {
            let (id, then) = (text(&rule["rule"]), text(&rule["if_missing"]));
            let name = name_suffix(rule);
            return format!(
                "{id}{name} {says}{note}: the request has no cost in {unit:?} (if_missing: {then})"
            );
        }
        let (key, name) = (text(&rule["key"]), name_suffix(rule));
        if rule["blocked"] == json!(true) {
            return format!("{key}{name} {says}{note}: an override blocks this key");
        }
        // An explanation spends nothing, so it reports the units that are left now.
        let left = if rule["left"].is_u64() { &rule["left"] } else { &rule["remaining"] };
        let unit = rule["unit"].as_str().map(|unit| format!(" {unit}")).unwrap_or_default();
        format!("{key}{name} {says}{note}: {left} of {}{unit} left{}", rule["limit"], attempts(rule))
    })
}

/// Returns the name of a rule in parentheses, or an empty text if it has none.
pub(super) fn name_suffix(rule: &Value) -> String {
    rule["name"].as_str().map(|name| format!(" ({name})")).unwrap_or_default()
}

/// Returns the counts of an abuse rule: "; 3 attempts in the short window, 3 in the long one, blocked by
/// the temp window".
fn attempts(rule: &Value) -> String {
    let (Some(short), Some(long)) = (rule["short_count"].as_u64(), rule["long_count"].as_u64()) else {
        return String::new();
    };
    let block =
        rule["scope"].as_str().map(|scope| format!(", blocked by the {scope} window")).unwrap_or_default();
    format!("; {short} attempts in the short window, {long} in the long one{block}")
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Explains a request by the rules of a file, with fresh counters.
fn explain_with_file(file: &Path, request: &Value) -> Result<Value, String> {
    let failed = |error: &dyn Display| error.to_string();
    let rules = RuleSet::read(file).map_err(|invalid| failed(&invalid))?;
    let limiter = RateLimiter::builder().build().map_err(|error| failed(&error))?;
    let engine = Engine::local(Arc::new(limiter), rules);
    let body = request.to_string();
    let request = RequestDescription::read(body.as_bytes()).map_err(|refusal| failed(&refusal))?;
    let pairs = request.pairs();
    let sets = pairs.sets();
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| failed(&error))?;
    let explanation = runtime.block_on(engine.explain(&request_of(&sets))).map_err(|error| failed(&error))?;
    serde_json::to_value(ExplainResponse::new(&explanation)).map_err(|error| failed(&error))
}
