//! `docs/server.md` describes every setting and every metric, and no others. Its routes are
//! those of `/openapi.json`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use trypema_testkit::redis::Server;

use crate::harness::trypema;
use crate::in_process::InProcess;

fn page() -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md")).unwrap()
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

/// Returns every long flag of `trypema serve --help`, in the spelling of a setting.
fn flags() -> BTreeSet<String> {
    let help = trypema().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let names = flags.filter_map(|flag| flag.split([' ', '=']).next());
    names.filter(|name| !["config", "help"].contains(name)).map(|name| name.replace('-', "_")).collect()
}

#[test]
fn every_setting_is_described_and_the_reverse() {
    assert_eq!(first_cells(&page(), "## Settings"), flags());
}

#[test]
fn every_flag_has_its_variable() {
    let help = trypema().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in flags() {
        let variable = format!("[env: TRYPEMA_{}", flag.to_uppercase());
        assert!(help.contains(&variable), "{variable} is not in the help");
    }
}

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
    // The number of instances is unknown until the first lease request.
    let missing: Vec<_> =
        described.difference(&served).filter(|name| **name != "trypema_instances").collect();
    assert!(missing.is_empty(), "described, and not served: {missing:?}");
}

#[test]
fn every_route_of_the_table_is_in_the_description_for_programs() {
    let rows = first_cells(&page(), "asked is 503 and never 429.");
    let document = InProcess::start("").client().send("GET", "/openapi.json", &[], "").json();
    assert!(rows.len() >= 6, "{rows:?}");
    for row in rows {
        let (method, path) = row.split_once(' ').unwrap();
        assert!(document["paths"][path][method.to_lowercase()].is_object(), "{row}");
    }
}
