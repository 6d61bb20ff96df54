//! Declares metrics where they are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counter, Exposition, MetricType};

/// Defines structs of metrics. A family has one field, or a field per value of a label, which has its name:
///
/// ```text
/// "name", "help" { field: TYPE }
/// "name", "help", by "label" { field: TYPE, … }
/// ```
macro_rules! metrics {
    ($(
        $(#[$about:meta])*
        $metrics:ident { $(
            $name:literal, $help:literal $(, by $label:literal)? {
                $($(#[$field_about:meta])* $field:ident: $type:ty),+ $(,)?
            }
        )+ }
    )+) => { $(
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $metrics {
            $($($(#[$field_about])* pub(crate) $field: $type,)+)+
        }

        impl $crate::metrics::Families for $metrics {
            fn write_all<'a>(
                text: &mut $crate::metrics::Exposition,
                parts: impl Iterator<Item = (&'a [(&'a str, &'a str)], &'a Self)> + Clone,
            ) {
                $(
                    text.family($name, [$(<$type as $crate::metrics::Metric>::TYPE),+][0], $help);
                    let label: &[&str] = &[$($label)?];
                    for (labels, part) in parts.clone() {
                        $({
                            let own = label.iter().map(|label| (*label, stringify!($field)));
                            let labels: Vec<_> = labels.iter().copied().chain(own).collect();
                            $crate::metrics::Metric::write(&part.$field, text, &labels);
                        })+
                    }
                )+
            }
        }
    )+ };
}

pub(crate) use metrics;

/// A struct of metrics.
pub(crate) trait Families: Sized + 'static {
    /// Writes the families. Each has the samples of all `parts`, with the labels that tell them apart.
    fn write_all<'a>(
        text: &mut Exposition,
        parts: impl Iterator<Item = (&'a [(&'a str, &'a str)], &'a Self)> + Clone,
    );

    /// Writes the families, with no labels but their own.
    fn write(&self, text: &mut Exposition) {
        Self::write_all(text, std::iter::once((&[][..], self)));
    }
}

/// One or several samples of a family.
pub(crate) trait Metric {
    /// The type of the family.
    const TYPE: MetricType;

    /// Writes the samples with `labels`.
    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]);
}

impl Metric for Counter {
    const TYPE: MetricType = MetricType::Counter;

    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        text.sample(labels, self.get());
    }
}

/// A gauge.
impl Metric for AtomicU64 {
    const TYPE: MetricType = MetricType::Gauge;

    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        text.sample(labels, self.load(Ordering::Relaxed));
    }
}

/// A gauge that is changed under a lock.
impl Metric for i64 {
    const TYPE: MetricType = MetricType::Gauge;

    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        text.sample(labels, self);
    }
}

impl<M: Metric> Metric for Arc<M> {
    const TYPE: MetricType = M::TYPE;

    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        (**self).write(text, labels);
    }
}
