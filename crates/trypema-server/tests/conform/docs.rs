//! `docs/server.md` describes every setting and every metric, and no others. The dashboard and the alerts name only
//! metrics that exist. Its routes come from the table of routes, whose unit test compares them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use clap::{Arg, CommandFactory};
use trypema_server::cli::Cli;
use trypema_testkit::redis::Server;

use crate::in_process::InProcess;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn path() -> PathBuf {
    root().join("docs/server.md")
}

fn page() -> String {
    fs::read_to_string(path()).unwrap()
}

/// Returns the texts between backquotes in the first cells of the table after `heading`.
fn first_cells(page: &str, heading: &str) -> BTreeSet<String> {
    let rest = page.split_once(heading).unwrap_or_else(|| panic!("no {heading}")).1;
    let lines =
        rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = lines.filter_map(|line| line.split('|').nth(1));
    let named =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    named.collect()
}

/// Returns the table of settings, from the arguments of `trypema serve`.
fn table_of_settings() -> String {
    let command = Cli::command();
    let arguments = command.find_subcommand("serve").unwrap().get_arguments();
    let rows = arguments.filter(|argument| argument.get_help_heading().is_some()).map(|argument: &Arg| {
        let help = argument.get_help().unwrap().to_string();
        let (help, default) = help.split_once(" [default: ").unwrap_or((&help, ""));
        let values = argument.get_possible_values();
        let values: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let colon = if values.is_empty() { "" } else { ": " };
        let default = default.replace(']', " ");
        format!("| `{}` | {default}| {help}{colon}{} |\n", argument.get_id(), values.join(", "))
    });
    format!("| setting | default | |\n| --- | --- | --- |\n{}", rows.collect::<String>())
}

/// `UPDATE_DOCS=1` rewrites the table.
#[test]
fn the_table_of_settings_is_generated() {
    const MARKS: (&str, &str) = ("<!-- generated: settings -->\n", "<!-- end -->");
    let page = page();
    let (before, rest) = page.split_once(MARKS.0).unwrap();
    let (_, after) = rest.split_once(MARKS.1).unwrap();
    let written = [before, MARKS.0, &table_of_settings(), MARKS.1, after].concat();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path(), &written).unwrap();
    } else {
        assert_eq!(page, written, "UPDATE_DOCS=1 rewrites it");
    }
}

/// Metrics that only some servers have: the number of instances is unknown until the first lease request.
const SOMETIMES: [&str; 2] = ["trypema_instances", "trypema_tls_certificate_expires_timestamp_seconds"];

/// Returns the name of a metric without its labels.
fn name(metric: &str) -> &str {
    metric.split('{').next().unwrap_or_default()
}

#[test]
fn every_metric_is_described_and_the_reverse() {
    let described = first_cells(&page(), "**Metrics** at");
    let described: BTreeSet<&str> = described.iter().map(|metric| name(metric)).collect();
    let redis = Server::shared().unwrap();
    let settings =
        format!("provider: hybrid\nredis_url: {}\nredis_prefix: {}", redis.url(), redis.unique_prefix());
    let service = InProcess::start(&settings);
    let mut client = service.client();
    for _ in 0..20 {
        client.send("POST", "/v1/check", &[], r#"{"attributes": {"user": "ann"}}"#);
    }
    let text = client.send("GET", "/metrics", &[], "").body;
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let (process, served): (BTreeSet<&str>, BTreeSet<&str>) =
        families.partition(|family| family.starts_with("process_"));
    assert!(described.contains("process_*") && !process.is_empty());
    let described: BTreeSet<&str> = described.into_iter().filter(|name| *name != "process_*").collect();
    let undescribed: Vec<_> = served.difference(&described).collect();
    assert!(undescribed.is_empty(), "served, and not described: {undescribed:?}");
    let missing: Vec<_> = described.difference(&served).filter(|name| !SOMETIMES.contains(name)).collect();
    assert!(missing.is_empty(), "described, and not served: {missing:?}");
    for file in ["docs/server.md", "deploy/grafana/trypema.json", "deploy/prometheus/alerts.yaml"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let unknown: BTreeSet<&str> = metrics_in(&text)
            .filter(|name| !served.contains(name) && !process.contains(name) && !SOMETIMES.contains(name))
            .collect();
        assert!(unknown.is_empty(), "in {file}, and not served: {unknown:?}");
    }
}

/// Returns the words of a text that are names of metrics, without the suffixes of histograms.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let names = words.filter(|word| {
        ["trypema_", "limiter_", "process_"].iter().any(|start| word.starts_with(start) && word != start)
    });
    names.map(|name| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        histogram.unwrap_or(name)
    })
}
