//! The enforcer with rules.

use std::sync::Arc;

use super::super::key::{Key, KeyExtractor};
use super::super::reservation_handle::{ReservationTransfer, RunningReservation};
use super::super::view::RequestView;
use super::{
    AfterResponseResult, CheckOutcome, CheckedRequest, CountWhen, CountingOptions, EnforcerError,
    LayerDecision,
};
use crate::rules::{Engine, Request, ReserveOptions};

/// The attribute for rules by address. Every request has an address, so a layer that cannot determine it is
/// misconfigured.
const ADDRESS: &str = "ip";

const NO_ADDRESS_EXTRACTOR: &str = "A rule needs the attribute `ip`, which this layer does not set: add \
    `.attribute(\"ip\", PeerIpKeyExtractor)` or, behind proxies, a `SmartIpKeyExtractor`, and serve with \
    `into_make_service_with_connect_info::<SocketAddr>()`.";

/// Rules, and the extractors of their attributes.
pub(in super::super) struct RulesEnforcer {
    pub(in super::super) engine: Arc<Engine>,
    pub(in super::super) attributes: Vec<Attribute>,
    pub(in super::super) unit_costs: Vec<UnitCost>,
    /// The options of the reservations, if the layer reserves.
    pub(in super::super) reserve: Option<ReserveOptions>,
}

/// A unit, and the function that computes a request's cost in it.
pub(in super::super) struct UnitCost {
    pub(in super::super) unit: Box<str>,
    pub(in super::super) cost: CostOf,
}

pub(in super::super) type CostOf = Box<dyn Fn(&RequestView<'_>) -> Option<u64> + Send + Sync>;

/// An attribute, and its extractor.
pub(in super::super) struct Attribute {
    pub(in super::super) name: Box<str>,
    pub(in super::super) extractor: Box<dyn KeyExtractor>,
}

/// An owned copy of the request's attributes, for the future that outlives the borrowed request.
struct OwnedRequest {
    enforcer: Arc<RulesEnforcer>,
    values: Vec<Option<String>>,
    endpoint: String,
    method: String,
    cost: u64,
    /// The cost in each unit of the enforcer.
    unit_costs: Vec<Option<u64>>,
}

impl RulesEnforcer {
    pub(super) fn check(
        self: &Arc<Self>,
        request: &RequestView<'_>,
        options: CountingOptions,
    ) -> CheckOutcome {
        let values: Vec<Option<Key<'_>>> =
            self.attributes.iter().map(|attribute| attribute.extractor.extract(request)).collect();
        let values = || values.iter().map(|value| value.as_ref().map(Key::as_str));
        let attributes = self.attributes(values(), request.path(), request.method.as_str());
        let unit_costs: Vec<Option<u64>> = self.unit_costs.iter().map(|unit| (unit.cost)(request)).collect();
        let costs = self.costs(&unit_costs);
        let rules_request = Request::new(&attributes).costing(options.cost).with_costs(&costs);
        if let Some(advice) = self.missing_mandatory(&rules_request) {
            return CheckOutcome::Ready(Err(EnforcerError::MissingKey(advice)));
        }
        if options.count_when == CountWhen::Before
            && self.reserve.is_none()
            && let Some(verdict) = self.engine.try_check(&rules_request)
        {
            let checked = verdict.map(CheckedRequest::without_follow_up);
            return CheckOutcome::Ready(checked.map_err(EnforcerError::from));
        }
        let owned = OwnedRequest {
            enforcer: Arc::clone(self),
            values: values().map(|value| value.map(str::to_owned)).collect(),
            endpoint: request.path().to_owned(),
            method: request.method.as_str().to_owned(),
            cost: options.cost,
            unit_costs,
        };
        CheckOutcome::Pending(match &self.reserve {
            None => Box::pin(owned.decide(options.count_when)),
            Some(reserve) => Box::pin(owned.reserve(reserve.clone(), options.count_when)),
        })
    }

    /// Returns instructions for the developer if a rule or a list needs a mandatory attribute that the layer
    /// could not determine. Only a misconfigured server lacks one: an address.
    fn missing_mandatory(&self, rules_request: &Request<'_>) -> Option<&'static str> {
        let mandatory = self.attributes.iter().filter(|attribute| attribute.extractor.is_mandatory());
        let mandatory = mandatory.map(|attribute| (&*attribute.name, attribute.extractor.advice()));
        let is_extracted = |name: &str| self.attributes.iter().any(|attribute| *attribute.name == *name);
        let unextracted = (!is_extracted(ADDRESS)).then_some((ADDRESS, NO_ADDRESS_EXTRACTOR));
        let mut missing = mandatory
            .chain(unextracted)
            .filter(|(name, _)| rules_request.attribute(name).is_none())
            .peekable();
        missing.peek()?;
        let rules = self.engine.rules();
        missing.find(|(name, _)| rules.needs(name, rules_request)).map(|(_, advice)| advice)
    }

    /// Returns the attributes that have a value. `endpoint` and `method` come last, because the first value
    /// of a name counts.
    fn attributes<'a>(
        &'a self,
        values: impl Iterator<Item = Option<&'a str>>,
        endpoint: &'a str,
        method: &'a str,
    ) -> Vec<(&'a str, &'a str)> {
        let mut attributes = Vec::with_capacity(self.attributes.len() + 2);
        let named = self.attributes.iter().zip(values);
        attributes.extend(named.filter_map(|(attribute, value)| Some((&*attribute.name, value?))));
        attributes.extend([("endpoint", endpoint), ("method", method)]);
        attributes
    }

    /// Returns the costs that are known, by unit.
    fn costs(&self, unit_costs: &[Option<u64>]) -> Vec<(&str, u64)> {
        let units = self.unit_costs.iter().zip(unit_costs);
        units.filter_map(|(unit, cost)| Some((&*unit.unit, (*cost)?))).collect()
    }
}

impl OwnedRequest {
    async fn decide(self, count_when: CountWhen) -> Result<CheckedRequest, EnforcerError> {
        let engine = Arc::clone(&self.enforcer.engine);
        let (attributes, costs) = (self.attributes(), self.enforcer.costs(&self.unit_costs));
        let request = Request::new(&attributes).costing(self.cost).with_costs(&costs);
        Ok(match count_when {
            CountWhen::Before => CheckedRequest::without_follow_up(engine.check(&request).await?),
            CountWhen::BeforeWithReceipt => {
                let checked = engine.check_with_receipts(&request).await?;
                CheckedRequest::new(checked.verdict().clone(), move || {
                    AfterResponseResult::Pending(Box::pin(async move {
                        // The observer reports failures. Units that cannot be refunded stay spent.
                        let _ = engine.refund(checked).await;
                        None
                    }))
                })
            }
            CountWhen::After => {
                let verdict = engine.peek(&request).await?;
                drop((attributes, costs));
                CheckedRequest::new(verdict, move || AfterResponseResult::Pending(Box::pin(self.charge())))
            }
        })
    }

    /// Reserves the cost of a request. With `refund_if`, the response decides whether the request costs
    /// anything.
    async fn reserve(
        self,
        options: ReserveOptions,
        count_when: CountWhen,
    ) -> Result<CheckedRequest, EnforcerError> {
        let engine = Arc::clone(&self.enforcer.engine);
        let (attributes, costs) = (self.attributes(), self.enforcer.costs(&self.unit_costs));
        let request = Request::new(&attributes).costing(self.cost).with_costs(&costs);
        let reservation = engine.reserve(&request, &options).await?;
        let decision = LayerDecision::from(reservation.verdict().clone());
        if !decision.is_allowed() {
            return Ok(CheckedRequest::without_follow_up(decision));
        }
        let running = RunningReservation::new(engine, reservation.renewing(options.ttl()));
        let handle = (count_when == CountWhen::BeforeWithReceipt).then(|| running.handle().clone());
        let checked = match handle {
            None => CheckedRequest::without_follow_up(decision),
            Some(handle) => CheckedRequest::new(decision, move || {
                handle.release();
                AfterResponseResult::Ready(None)
            }),
        };
        Ok(CheckedRequest { reservation: Some(ReservationTransfer::of(running)), ..checked })
    }

    /// Counts a request after its response, on each rule independently. Neither a denial nor a failure
    /// changes the response.
    async fn charge(self) -> Option<LayerDecision> {
        let (attributes, costs) = (self.attributes(), self.enforcer.costs(&self.unit_costs));
        let request = Request::new(&attributes).costing(self.cost).with_costs(&costs);
        self.enforcer.engine.record(&request).await.ok().map(LayerDecision::from)
    }

    fn attributes(&self) -> Vec<(&str, &str)> {
        self.enforcer.attributes(self.values.iter().map(Option::as_deref), &self.endpoint, &self.method)
    }
}
