//! The options that one limit and rules have in common.

use ::http::{Method, Response};

use super::denial::Denial;
use super::enforcer::{CountWhen, CountingOptions};
use super::view::{RequestView, ResponseView};
use crate::http::HeaderStyle;
use crate::rules::has_dot_segments;

type Skip = Box<dyn Fn(&RequestView<'_>) -> bool + Send + Sync>;
type Cost = Box<dyn Fn(&RequestView<'_>) -> u64 + Send + Sync>;
type ErrorHandler = Box<dyn Fn(&Denial<'_>) -> Response<String> + Send + Sync>;
pub(super) type Predicate = Box<dyn Fn(&ResponseView<'_>) -> bool + Send + Sync>;

/// The options of a layer.
pub(super) struct Options {
    /// The methods that are limited; `None` for all.
    pub(super) methods: Option<Vec<Method>>,
    pub(super) skips: Vec<Skip>,
    pub(super) accepts_dot_segments: bool,
    /// The function that computes the cost; `None` for a cost of 1.
    pub(super) cost: Option<Cost>,
    pub(super) headers: HeaderStyle,
    pub(super) error_handler: Option<ErrorHandler>,
    pub(super) count_when: CountWhen,
    /// The responses after which a request is counted or refunded.
    pub(super) is_followed_up: Option<Predicate>,
}

impl Options {
    /// Whether the layer is not for the method of a request. Some services serve `post` as `POST`.
    #[inline]
    pub(super) fn is_other_method(&self, request: &RequestView<'_>) -> bool {
        let is_given = |method: &Method| method.as_str().eq_ignore_ascii_case(request.method.as_str());
        self.methods.as_ref().is_some_and(|methods| !methods.iter().any(is_given))
    }

    /// Whether the path of a request is refused.
    #[inline]
    pub(super) fn is_refused(&self, request: &RequestView<'_>) -> bool {
        !self.accepts_dot_segments && has_dot_segments(request.path())
    }

    /// Whether a request is exempt from the layer.
    #[inline]
    pub(super) fn is_skipped(&self, request: &RequestView<'_>) -> bool {
        self.skips.iter().any(|skip| skip(request))
    }

    #[inline]
    pub(super) fn counting_options(&self, request: &RequestView<'_>) -> CountingOptions {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(request));
        CountingOptions {
            cost,
            count_when: self.count_when,
            reports_quota: self.headers != HeaderStyle::None,
        }
    }

    /// Whether the request has to be counted or refunded after this response.
    pub(super) fn needs_follow_up(&self, response: &ResponseView<'_>) -> bool {
        self.is_followed_up.as_ref().is_some_and(|predicate| predicate(response))
    }
}
