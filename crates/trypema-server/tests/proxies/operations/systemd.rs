//! The systemd unit, checked with `systemd-analyze` and by its own text.

use std::fs;
use std::process::Command;

use crate::harness::trypema;
use crate::text_of;

use super::{directory, run, yaml_of};

/// The maximum score of `systemd-analyze security`, times ten. The unit has 1.4, mostly for network access,
/// which it needs.
const EXPOSURE: &str = "15";

/// The default of `--max-connections`, plus the descriptors that the server reserves.
const DESCRIPTORS: u64 = 10_000 + 256;

/// The settings of `trypema.service`.
pub(super) struct Unit(Vec<(String, String)>);

impl Unit {
    pub(super) fn read() -> Self {
        let text = text_of("systemd/trypema.service");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(
            lines
                .filter_map(|line| line.split_once('='))
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }

    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| given == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn only(&self, key: &str) -> &str {
        let values: Vec<_> = self.all(key).collect();
        assert_eq!(values.len(), 1, "{key}: {values:?}");
        values[0]
    }

    fn seconds(&self, key: &str) -> u64 {
        seconds(self.only(key))
    }
}

#[test]
fn it_is_valid_and_hardened() {
    let file = directory("systemd").join("trypema.service");
    // The program must exist for the unit to be valid.
    let unit = text_of("systemd/trypema.service");
    let program = trypema().get_program().to_str().unwrap().to_owned();
    fs::write(&file, unit.replace("/usr/local/bin/trypema", &program)).unwrap();
    // The tool only warns about settings that it does not understand. It also warns about other units of the
    // machine.
    let printed = run(Command::new("systemd-analyze").arg("verify").arg(&file));
    assert!(!printed.contains("trypema"), "{printed}");
    let security = ["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE];
    run(Command::new("systemd-analyze").args(security).arg(&file));
}

#[test]
fn it_leaves_time_to_stop_and_descriptors_to_connect() {
    let unit = Unit::read();
    let config = yaml_of("trypema/trypema.yaml");
    let deadline = seconds(config["shutdown_deadline"].as_str().unwrap());
    assert!(unit.seconds("TimeoutStopSec") > deadline);
    assert!(unit.only("LimitNOFILE").parse::<u64>().unwrap() >= DESCRIPTORS);
}

#[test]
fn credentials_are_loaded_that_are_used() {
    let unit = Unit::read();
    let loaded: Vec<&str> =
        unit.all("LoadCredential").map(|value| value.split(':').next().unwrap()).collect();
    let used: Vec<&str> =
        unit.all("Environment").filter_map(|value| Some(value.split_once("=%d/")?.1)).collect();
    assert_eq!(loaded, used);
    assert_eq!(loaded, ["hash-secret", "admin-token"]);
}

fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').unwrap().parse().unwrap()
}
