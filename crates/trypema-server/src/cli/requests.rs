//! Commands about one request: `trypema check`, `reserve`, `settle`, `release`, `renew` and `explain`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Map, Value, json};
use trypema::RateLimiter;
use trypema::rules::{Engine, RuleSet};

use super::service::{AdminService, Call, CheckService};
use super::{elements, failed, print, text};
use crate::attributes::request_of;
use crate::refusal::Refusal;
use crate::service::json::RequestDescription;
use crate::service::report::ExplainResponse;

#[derive(Debug, Subcommand)]
pub(super) enum Requests {
    /// Check whether a request may proceed: exit code 0 if allowed, 1 if denied, 2 if the server is
    /// unreachable
    Check {
        #[command(flatten)]
        request: RequestArgs,
        #[command(flatten)]
        service: CheckService,
        /// Only check: nothing is spent
        #[arg(long)]
        peek: bool,
    },
    /// Reserve the estimated cost of a request, and print the reservation: exit code 0 if allowed, 1 if
    /// denied, 2 if the server is unreachable
    Reserve {
        #[command(flatten)]
        request: RequestArgs,
        /// Time for which the reservation lasts, at most 1h; `trypema renew` lets it last longer
        #[arg(long, default_value = "60s", value_name = "TIME")]
        ttl: String,
        /// Id that makes the request safe to repeat: the same id, attributes and costs return the same
        /// reservation. Any caller that knows the id can settle the reservation
        #[arg(long)]
        id: Option<String>,
        #[command(flatten)]
        service: CheckService,
    },
    /// Settle a reservation at the real cost: exit code 0 if settled, 1 if it was no longer outstanding, 2 if
    /// the server is unreachable
    Settle {
        #[command(flatten)]
        reservation: ReservationArgs,
        /// Real cost: a number of requests, or of another unit, as in tokens=1830; may be repeated. A unit without
        /// a cost keeps its estimate
        #[arg(long, value_name = "[UNIT=]NUMBER", value_parser = cost)]
        cost: Vec<GivenFields>,
        #[command(flatten)]
        service: CheckService,
    },
    /// Release a reservation, as if the request had never been made; exit codes as of `settle`
    Release {
        #[command(flatten)]
        reservation: ReservationArgs,
        #[command(flatten)]
        service: CheckService,
    },
    /// Let a reservation last longer: exit code 0 if renewed, 1 if it was no longer outstanding, 2 if the
    /// server is unreachable
    Renew {
        #[command(flatten)]
        reservation: ReservationArgs,
        /// Time for which the reservation lasts from now on, at most 1h
        #[arg(long, default_value = "60s", value_name = "TIME")]
        ttl: String,
        #[command(flatten)]
        service: CheckService,
    },
    /// Show what every rule decides about a request; nothing is spent
    Explain {
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
    },
}

/// The request to check, reserve or explain.
#[derive(Debug, clap::Args)]
pub(super) struct RequestArgs {
    /// Attributes of the request: user=ann endpoint=/search, or as JSON: '{"user": "ann"}'
    #[arg(value_name = "NAME=VALUE", value_parser = attributes)]
    attributes: Vec<GivenFields>,
    /// Cost of the request: a number of requests, or of another unit, as in tokens=4200; may be repeated
    #[arg(long, value_name = "[UNIT=]NUMBER", value_parser = cost)]
    cost: Vec<GivenFields>,
    /// Further attribute set, checked together with the attributes above, as JSON: '{"attributes": {"tenant":
    /// "acme"}, "costs": {"tokens": 20}}'; may be repeated
    #[arg(long, value_name = "JSON", value_parser = further_set)]
    set: Vec<Value>,
}

/// The name of a reservation.
#[derive(Debug, clap::Args)]
pub(super) struct ReservationArgs {
    /// The reservation, as `trypema reserve` printed it; with --id, the attributes of its request, as in user=ann
    #[arg(required = true, value_name = "RESERVATION|NAME=VALUE")]
    names: Vec<String>,
    /// Id that the request chose
    #[arg(long)]
    id: Option<String>,
}

/// Attributes or costs that one argument gives.
#[derive(Debug, Clone)]
pub(super) struct GivenFields(Map<String, Value>);

fn cost(text: &str) -> Result<GivenFields, String> {
    let (unit, number) = text.split_once('=').unwrap_or(("requests", text));
    let cost: u64 = number.parse().map_err(|_| "need a whole number, 0 or more, as in 5 or tokens=4200")?;
    Ok(GivenFields([(unit.to_owned(), json!(cost))].into_iter().collect()))
}

fn further_set(text: &str) -> Result<Value, String> {
    let need = "need a JSON object with attributes and costs";
    let set: Value = serde_json::from_str(text).map_err(|error| format!("{need}: {error}"))?;
    if set.is_object() { Ok(set) } else { Err(need.to_owned()) }
}

/// Parses one attribute as `NAME=VALUE`, or those of a JSON object.
fn attributes(text: &str) -> Result<GivenFields, String> {
    if text.trim_start().starts_with('{') {
        let object: std::collections::BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|error| format!("need a JSON object of texts, as in {{\"user\": \"ann\"}}: {error}"))?;
        return Ok(GivenFields(object.into_iter().map(|(name, value)| (name, value.into())).collect()));
    }
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok(GivenFields([(name.to_owned(), value.into())].into_iter().collect()))
        }
        _ => Err("need a name and a value, as in user=ann, or a JSON object".to_owned()),
    }
}

/// Returns the fields of all arguments as one object. Fails if one is given twice; `what` describes it.
fn object_of(given: &[GivenFields], what: &str) -> Result<Map<String, Value>, String> {
    let mut object = Map::new();
    for (name, value) in given.iter().flat_map(|GivenFields(fields)| fields) {
        if object.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("{what} {name:?} is given twice"));
        }
    }
    Ok(object)
}

const ATTRIBUTE: &str = "attribute";
const COST: &str = "the cost in";

impl RequestArgs {
    fn to_json(&self) -> Result<Value, String> {
        let costs = object_of(&self.cost, COST)?;
        let is_given = !self.attributes.is_empty();
        if !is_given && !self.set.is_empty() && !costs.is_empty() {
            return Err(
                "--cost is for the attributes NAME=VALUE; write the costs of a --set into it".to_owned()
            );
        }
        let mut first = json!({"attributes": object_of(&self.attributes, ATTRIBUTE)?});
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

impl ReservationArgs {
    /// Returns the fields of a request that name the reservation.
    fn to_json(&self) -> Result<Value, String> {
        match (&self.id, &*self.names) {
            (Some(id), names) => {
                let given: Vec<_> = names.iter().map(|name| attributes(name)).collect::<Result<_, _>>()?;
                Ok(json!({"id": id, "attributes": object_of(&given, ATTRIBUTE)?}))
            }
            (None, [text]) => Ok(json!({"reservation": text})),
            (None, _) => Err("need one reservation, or --id with attributes".to_owned()),
        }
    }
}

impl Requests {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        match self {
            Self::Check { request, service, peek } => {
                let mut request = request.to_json()?;
                if peek {
                    request["mode"] = json!("peek");
                }
                service.ask("/v1/check", &request, "allowed", report)
            }
            Self::Reserve { request, ttl, id, service } => {
                let mut request = request.to_json()?;
                request["ttl"] = json!(ttl);
                if let Some(id) = id {
                    request["id"] = json!(id);
                }
                service.ask("/v1/reserve", &request, "allowed", reserved)
            }
            Self::Settle { reservation, cost, service } => {
                let mut request = reservation.to_json()?;
                request["costs"] = json!(object_of(&cost, COST)?);
                service.ask("/v1/settle", &request, "settled", |response| settled(response, "settled"))
            }
            Self::Release { reservation, service } => {
                let settled = |response: &Value| settled(response, "released");
                service.ask("/v1/release", &reservation.to_json()?, "settled", settled)
            }
            Self::Renew { reservation, ttl, service } => {
                let mut request = reservation.to_json()?;
                request["ttl"] = json!(ttl);
                service.ask("/v1/renew", &request, "renewed", renewed)
            }
            Self::Explain { request, service, json, rules } => {
                let request = request.to_json()?;
                let response = match rules {
                    Some(file) => explain_with_file(&file, &request).map_err(|error| error.to_string())?,
                    None => service.call(&Call::post("/v1/explain", &request))?,
                };
                print(&if json { format!("{response:#}\n") } else { report(&response) });
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl CheckService {
    /// Sends a request, and prints the response as JSON or as text. The exit code is that of success if the field
    /// `success` is true, and that of a failed command if Redis failed at a counter.
    fn ask(
        &self,
        path: &str,
        request: &Value,
        success: &str,
        as_text: impl FnOnce(&Value) -> String,
    ) -> Result<ExitCode, String> {
        let response = self.call(&Call::post(path, request))?;
        print(&if self.json { format!("{response:#}\n") } else { as_text(&response) });
        if elements(&response["rules"]).any(|rule| rule["status"] == "failed") {
            return Ok(failed("Redis failed at some counters: repeat the command"));
        }
        Ok(if response[success] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
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
fn report(response: &Value) -> String {
    let mut lines = vec![summary(response)];
    lines.extend(elements(&response["rules"]).map(|rule| format!("  {}", decided(rule))));
    for (list, says) in [("skipped", "skipped"), ("not_applying", "does not apply")] {
        lines.extend(elements(&response[list]).map(|rule| {
            format!("  {}{}: {says}, {}", text(&rule["rule"]), name_suffix(rule), text(&rule["reason"]))
        }));
    }
    lines.join("\n") + "\n"
}

/// Returns the decision of a rule.
fn decided(rule: &Value) -> String {
    let says = if rule["allowed"] == json!(true) { "allows" } else { "denies" };
    let note = if rule["action"] == json!("log_only") { " (only logged)" } else { "" };
    let name = name_suffix(rule);
    for (field, lacks) in [("missing_attribute", "no"), ("missing_unit", "no cost in")] {
        if let Value::String(missing) = &rule[field] {
            let (id, then) = (text(&rule["rule"]), text(&rule["if_missing"]));
            return format!(
                "{id}{name} {says}{note}: the request has {lacks} {missing:?} (if_missing: {then})"
            );
        }
    }
    let key = text(&rule["key"]);
    if rule["blocked"] == json!(true) {
        return format!("{key}{name} {says}{note}: an override blocks this key");
    }
    // An explanation spends nothing, so it reports the units that are left now.
    let left = if rule["left"].is_u64() { &rule["left"] } else { &rule["remaining"] };
    let unit = rule["unit"].as_str().map(|unit| format!(" {unit}")).unwrap_or_default();
    format!("{key}{name} {says}{note}: {left} of {}{unit} left{}", rule["limit"], attempts(rule))
}

/// Returns the name of a rule in parentheses, or an empty text if it has none.
fn name_suffix(rule: &Value) -> String {
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

/// Returns the lines of a check, then the reservation on a line of its own, so that scripts can read it.
fn reserved(response: &Value) -> String {
    let mut lines = report(response);
    if let Some(reservation) = response["reservation"].as_str() {
        let again = match (&response["repeated"], &response["ended"]) {
            (_, Value::Bool(true)) => "was reserved before, and settled or released: it holds nothing; ",
            (Value::Bool(true), _) => "was reserved before; ",
            _ => "",
        };
        lines += &format!("{again}expires in {} ms\n{reservation}\n", response["expires_in_ms"]);
    }
    lines
}

/// Returns a summary, and a line for each counter.
fn settled(response: &Value, done: &str) -> String {
    let not = if response["settled"] == json!(true) { "" } else { "not " };
    let mut lines = format!("{not}{done}\n");
    for rule in elements(&response["rules"]) {
        let what = match text(&rule["status"]) {
            "settled" => format!(
                "counted {} {}, reserved {}; {} free again",
                rule["counted"],
                text(&rule["unit"]),
                rule["reserved"],
                rule["refunded"]
            ),
            "settled_before" => "settled or released before".to_owned(),
            "rule_removed" => "no rule has this counter any more".to_owned(),
            "failed" => format!("failed, repeat the command: {}", text(&rule["error"])),
            _ => "not outstanding: it expired, or was settled or released before".to_owned(),
        };
        lines += &format!("  {}{}: {what}\n", text(&rule["key"]), name_suffix(rule));
    }
    lines
}

fn renewed(response: &Value) -> String {
    match response["expires_in_ms"].as_u64() {
        Some(expires_in) => format!("renewed; expires in {expires_in} ms\n"),
        None => "not renewed: the reservation expired, or was settled or released\n".to_owned(),
    }
}

/// Explains a request by the rules of a file, with fresh counters.
fn explain_with_file(file: &Path, request: &Value) -> Result<Value, Box<dyn Error>> {
    let engine = Engine::local(Arc::new(RateLimiter::builder().build()?), RuleSet::read(file)?);
    let request =
        RequestDescription::read(request.to_string().as_bytes()).map_err(|refusal| match refusal {
            Refusal::Invalid(reason) => reason.into_owned(),
            other => other.code().to_owned(),
        })?;
    let pairs = request.pairs();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let explanation = runtime.block_on(engine.explain(&request_of(&pairs.sets())))?;
    Ok(serde_json::to_value(ExplainResponse::new(&explanation))?)
}
