//! `trypema reserve`, `settle`, `release` and `renew`: reservations from a shell.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::check::{
    GivenAttributes, GivenCost, RequestArgs, attributes, attributes_of, cost, costs_of, name_suffix, report,
    text,
};
use super::service::{Call, CheckService};
use super::{failed, print};

/// Reserve the estimated cost of a request
#[derive(Debug, clap::Args)]
pub(super) struct Reserve {
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
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

/// The name of a reservation
#[derive(Debug, clap::Args)]
struct ReservationArgs {
    /// The reservation, as `trypema reserve` printed it; with --id, the attributes of its request, as in user=ann
    #[arg(required = true, value_name = "RESERVATION|NAME=VALUE")]
    names: Vec<String>,
    /// Id that the request chose
    #[arg(long)]
    id: Option<String>,
}

impl ReservationArgs {
    /// Returns the fields of a request that name the reservation.
    fn to_json(&self) -> Result<Value, String> {
        let Some(id) = &self.id else {
            return match &*self.names {
                [text] => Ok(json!({"reservation": text})),
                _ => Err("need one reservation, or --id with attributes".to_owned()),
            };
        };
        let given: Vec<GivenAttributes> =
            self.names.iter().map(|name| attributes(name)).collect::<Result<_, _>>()?;
        Ok(json!({"id": id, "attributes": attributes_of(&given)?}))
    }
}

/// Settle a reservation
#[derive(Debug, clap::Args)]
pub(super) struct Settle {
    #[command(flatten)]
    named: ReservationArgs,
    /// Real cost: a number of requests, or of another unit, as in tokens=1830; may be repeated. A unit without
    /// a cost keeps its estimate
    #[arg(long, value_name = "[UNIT=]NUMBER", value_parser = cost)]
    cost: Vec<GivenCost>,
    #[command(flatten)]
    service: CheckService,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

/// Release a reservation
#[derive(Debug, clap::Args)]
pub(super) struct Release {
    #[command(flatten)]
    named: ReservationArgs,
    #[command(flatten)]
    service: CheckService,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

/// Let a reservation last longer
#[derive(Debug, clap::Args)]
pub(super) struct Renew {
    #[command(flatten)]
    named: ReservationArgs,
    /// Time for which the reservation lasts from now on, at most 1h
    #[arg(long, default_value = "60s", value_name = "TIME")]
    ttl: String,
    #[command(flatten)]
    service: CheckService,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

impl Reserve {
    pub(super) fn run(self) -> ExitCode {
        let response = self.request.to_json().and_then(|mut request| {
            request["ttl"] = json!(self.ttl);
            if let Some(id) = &self.id {
                request["id"] = json!(id);
            }
            self.service.call(&Call::post("/v1/reserve", &request))
        });
        finish(response, self.json, "allowed", reserved)
    }
}

impl Settle {
    pub(super) fn run(self) -> ExitCode {
        let response = self.named.to_json().and_then(|mut request| {
            request["costs"] = json!(costs_of(&self.cost)?);
            self.service.call(&Call::post("/v1/settle", &request))
        });
        finish(response, self.json, "settled", |response| settled(response, "settled"))
    }
}

impl Release {
    pub(super) fn run(self) -> ExitCode {
        let request = self.named.to_json();
        let response = request.and_then(|request| self.service.call(&Call::post("/v1/release", &request)));
        finish(response, self.json, "settled", |response| settled(response, "released"))
    }
}

impl Renew {
    pub(super) fn run(self) -> ExitCode {
        let response = self.named.to_json().and_then(|mut request| {
            request["ttl"] = json!(self.ttl);
            self.service.call(&Call::post("/v1/renew", &request))
        });
        finish(response, self.json, "renewed", |response| match response["expires_in_ms"].as_u64() {
            Some(expires_in) => format!("renewed; expires in {expires_in} ms\n"),
            None => "not renewed: the reservation expired, or was settled or released\n".to_owned(),
        })
    }
}

/// Prints a response. The exit code is that of success if the field `success` is true, and that of a failed
/// command if Redis failed at a counter.
fn finish(
    response: Result<Value, String>,
    is_json: bool,
    success: &str,
    as_text: impl FnOnce(&Value) -> String,
) -> ExitCode {
    match response {
        Err(error) => failed(error),
        Ok(response) => {
            print(&if is_json { format!("{response:#}\n") } else { as_text(&response) });
            let mut rules = response["rules"].as_array().into_iter().flatten();
            if rules.any(|rule| rule["status"] == "failed") {
                return failed("Redis failed at some counters: repeat the command");
            }
            if response[success] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
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
    let mut lines = match response["settled"] == json!(true) {
        true => format!("{done}\n"),
        false => format!("not {done}\n"),
    };
    for rule in response["rules"].as_array().into_iter().flatten() {
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
