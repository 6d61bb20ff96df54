//! The Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

/// The content type of the metrics response.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric family.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// A builder of the text. Each sample belongs to the last family that was begun.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    family: &'static str,
}

impl Exposition {
    pub(crate) fn family(&mut self, name: &'static str, kind: MetricType, help: &str) {
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        self.family = name;
        // Writing to a `String` cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes a counter that has no labels and is counted elsewhere.
    pub(crate) fn counter(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, MetricType::Counter, help);
        self.sample(&[], value);
    }

    /// Writes a gauge that has no labels and is known elsewhere.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, MetricType::Gauge, help);
        self.sample(&[], value);
    }

    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// Writes a sample whose name has a suffix, as histograms need.
    pub(crate) fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        for (index, (name, label)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{name}=\"");
            self.push_escaped(label);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn push_escaped(&mut self, label: &str) {
        for character in label.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                _ => self.text.push(character),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out() {
        let mut text = Exposition::default();
        text.family("trypema_any", MetricType::Gauge, "Any.");
        text.sample(&[("rule", "a\"} 1\n\\")], 2);
        assert_eq!(
            text.into_text(),
            "# HELP trypema_any Any.\n# TYPE trypema_any gauge\ntrypema_any{rule=\"a\\\"} 1\\n\\\\\"} 2\n"
        );
    }
}
