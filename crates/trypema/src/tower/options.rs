//! What there is to choose about a layer, whatever decides.

use ::http::{Method, Response};

use super::denial::Denial;
use super::gate::{Counting, Terms};
use super::incoming::{Incoming, ResponseView};
use crate::http::HeaderStyle;

type Skip = Box<dyn Fn(&Incoming<'_>) -> bool + Send + Sync>;
type Cost = Box<dyn Fn(&Incoming<'_>) -> u64 + Send + Sync>;
type ErrorHandler = Box<dyn Fn(&Denial<'_>) -> Response<String> + Send + Sync>;
pub(super) type Predicate = Box<dyn Fn(&ResponseView<'_>) -> bool + Send + Sync>;

/// What there is to choose.
pub(super) struct Options {
    /// All, if it is `None`.
    pub(super) methods: Option<Vec<Method>>,
    pub(super) skips: Vec<Skip>,
    /// One, if it is `None`.
    pub(super) cost: Option<Cost>,
    pub(super) headers: HeaderStyle,
    pub(super) error_handler: Option<ErrorHandler>,
    pub(super) charging: Charging,
}

/// When requests pay.
#[derive(Default)]
pub(super) enum Charging {
    #[default]
    Before,
    /// Before, and those whose response is so get it back.
    RefundIf(Predicate),
    /// After, and only those whose response is so.
    ChargeIf(Predicate),
}

impl Options {
    /// Whether the layer has nothing to do with a request.
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

    /// Whether something is to be done now that the response is known.
    pub(super) fn settles(&self, response: &ResponseView<'_>) -> bool {
        match &self.charging {
            Charging::Before => false,
            Charging::RefundIf(predicate) | Charging::ChargeIf(predicate) => predicate(response),
        }
    }
}
