//! Rule traces as files: the fields of a rules file, and steps.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trypema::clock::Timestamp;
use trypema::rules::{Document, Override, Period, Rule, RuleSet, Rules};

use super::step::RuleStep;
use super::written::WrittenStep;

/// The time of the first step, 2020-09-13 13:00:00 UTC: a full hour, so that windows aligned to the epoch are
/// easy to count.
const START: Timestamp = Timestamp::from_micros(1_600_002_000_000_000);

/// The time between two steps. Longer than any interval of the hybrid provider, which therefore leases nothing
/// and remembers no denial.
const DEFAULT_AFTER: Duration = Duration::from_secs(1);

/// A parsed rule trace.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleTrace {
    /// The name of its file.
    pub name: String,
    /// The rules.
    pub rules: Rules,
    /// The steps, in order.
    pub steps: Vec<RuleStep>,
}

/// The contents of a file. A rules file with `steps`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTrace {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    units: Vec<String>,
    rules: Vec<Rule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<Override>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    allow: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    block: BTreeMap<String, Vec<String>>,
    steps: Vec<WrittenStep>,
}

/// An error in a rule trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRuleTrace {
    /// The name of the file.
    pub name: String,
    /// The problems, with their lines.
    pub message: String,
}

impl fmt::Display for InvalidRuleTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl std::error::Error for InvalidRuleTrace {}

impl RuleTrace {
    /// Parses `text`, the contents of the file `name`. Anything that is not in the format is an error.
    pub fn parse(name: &str, text: &str) -> Result<Self, InvalidRuleTrace> {
        Self::read(name, text).map_err(|message| InvalidRuleTrace { name: name.to_owned(), message })
    }

    fn read(name: &str, text: &str) -> Result<Self, String> {
        if !text.starts_with("# ") {
            return Err("a trace opens with a comment that quotes the sentence it tests".to_owned());
        }
        let document = Document::from_yaml(text).map_err(|invalid| invalid.to_string())?;
        let parsed = document.read::<WrittenTrace>();
        if let Some(invalid) = parsed.invalid {
            return Err(invalid.to_string());
        }
        let WrittenTrace { units, rules, overrides, allow, block, steps } = parsed.value.ok_or("empty")?;
        let rules = Rules { units, rules, overrides, allow, block };
        RuleSet::compile(&rules).map_err(|invalid| invalid.to_string())?;
        if steps.is_empty() {
            return Err("a trace has at least one step".to_owned());
        }
        let mut now = START;
        let steps = steps.into_iter().enumerate().map(|(index, step)| {
            let default = if index == 0 { Duration::ZERO } else { DEFAULT_AFTER };
            now = now + step.after.map_or(default, |Period(after)| after);
            step.read(now).map_err(|problem| format!("steps[{index}]: {problem}"))
        });
        Ok(Self { name: name.to_owned(), rules, steps: steps.collect::<Result<_, String>>()? })
    }

    /// Whether the trace has reservations.
    pub fn has_reservations(&self) -> bool {
        self.steps.iter().any(|step| step.request.as_check().is_none())
    }

    /// Reads all traces of a folder, sorted by name.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, InvalidRuleTrace> {
        let failed = |error: std::io::Error| InvalidRuleTrace {
            name: folder.display().to_string(),
            message: error.to_string(),
        };
        let entries = std::fs::read_dir(folder).map_err(failed)?;
        let mut files =
            entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        files.sort();
        let read = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Self::parse(&name, &std::fs::read_to_string(path).map_err(failed)?)
        };
        files.iter().map(read).collect()
    }

    /// Returns the text of a file with this trace, to reproduce a difference that a random test has found.
    pub fn to_text(&self) -> String {
        let Rules { units, rules, overrides, allow, block } = self.rules.clone();
        let mut before = START;
        let steps = self.steps.iter().map(|step| {
            let after_us = step.at.as_micros().saturating_sub(before.as_micros());
            before = step.at;
            WrittenStep::of(step, Duration::from_micros(after_us))
        });
        let written = WrittenTrace { units, rules, overrides, allow, block, steps: steps.collect() };
        // JSON is YAML. Texts and numbers can always be written.
        format!("# {}\n{}\n", self.name, serde_json::to_string_pretty(&written).unwrap_or_default())
    }
}
