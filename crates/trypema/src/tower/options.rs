//! The options that one limit and rules have in common.

use ::http::{Method, Response};

use super::denial::Denial;
use super::gate::{Counting, Terms};
use super::incoming::{Incoming, ResponseView};
use crate::http::HeaderStyle;

type Skip = Box<dyn Fn(&Incoming<'_>) -> bool + Send + Sync>;
type Cost = Box<dyn Fn(&Incoming<'_>) -> u64 + Send + Sync>;
type ErrorHandler = Box<dyn Fn(&Denial<'_>) -> Response<String> + Send + Sync>;
pub(super) type Predicate = Box<dyn Fn(&ResponseView<'_>) -> bool + Send + Sync>;

/// The options of a layer.
pub(super) struct Options {
    /// The methods that are limited; `None` for all.
    pub(super) methods: Option<Vec<Method>>,
    pub(super) skips: Vec<Skip>,
    /// The function that computes the cost; `None` for a cost of 1.
    pub(super) cost: Option<Cost>,
    pub(super) headers: HeaderStyle,
    pub(super) error_handler: Option<ErrorHandler>,
    pub(super) charging: Charging,
}

/// The time at which a request is counted.
#[derive(Default)]
pub(super) enum Charging {
    #[default]
    Before,
    /// Before the request, and refunded if the predicate holds for the response.
    RefundIf(Predicate),
    /// After the response, if the predicate holds for it.
    ChargeIf(Predicate),
}

impl Options {
    /// Whether a request is exempt from the layer.
    #[inline]
    pub(super) fn passes(&self, request: &Incoming<'_>) -> bool {
        self.methods.as_ref().is_some_and(|methods| !methods.contains(request.method))
            || self.skips.iter().any(|skip| skip(request))
    }

    #[inline]
    pub(super) fn terms(&self, request: &Incoming<'_>) -> Terms {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(request));
        let counting = match self.charging {
            Charging::Before => Counting::Before,
            Charging::RefundIf(_) => Counting::Reserving,
            Charging::ChargeIf(_) => Counting::After,
        };
        Terms { cost, counting, is_told: self.headers != HeaderStyle::None }
    }

    /// Whether the request has to be counted or refunded after this response.
    pub(super) fn settles(&self, response: &ResponseView<'_>) -> bool {
        match &self.charging {
            Charging::Before => false,
            Charging::RefundIf(predicate) | Charging::ChargeIf(predicate) => predicate(response),
        }
    }
}
