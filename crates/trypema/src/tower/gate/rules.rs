//! The gate with rules.

use std::sync::Arc;

use super::super::incoming::Incoming;
use super::super::key::{Key, KeyExtractor};
use super::{Asked, Counting, Finding, Found, Settled, Terms, Trouble};
use crate::rules::{Engine, Request};

/// The attribute for rules by address. Every request has an address, so a layer that cannot determine it is
/// misconfigured.
const ADDRESS: &str = "ip";

const NO_ADDRESS_EXTRACTOR: &str = "A rule needs the attribute `ip`, which this layer does not set: add \
    `.attribute(\"ip\", PeerIpKeyExtractor)` or, behind proxies, a `SmartIpKeyExtractor`, and serve with \
    `into_make_service_with_connect_info::<SocketAddr>()`.";

/// Rules, and the extractors of their attributes.
pub(in super::super) struct RulesGate {
    pub(in super::super) engine: Arc<Engine>,
    pub(in super::super) attributes: Vec<Attribute>,
}

/// An attribute, and its extractor.
pub(in super::super) struct Attribute {
    pub(in super::super) name: Box<str>,
    pub(in super::super) extractor: Box<dyn KeyExtractor>,
}

/// An owned copy of the request's attributes, for the future that outlives the borrowed request.
struct Question {
    gate: Arc<RulesGate>,
    values: Vec<Option<String>>,
    endpoint: String,
    method: String,
    cost: u64,
}

impl RulesGate {
    pub(super) fn ask(self: &Arc<Self>, request: &Incoming<'_>, terms: Terms) -> Asked {
        let values: Vec<Option<Key<'_>>> =
            self.attributes.iter().map(|attribute| attribute.extractor.extract(request)).collect();
        let values = || values.iter().map(|value| value.as_ref().map(Key::as_str));
        let given = self.attributes(values(), request.path(), request.method.as_str());
        let asking = Request::new(&given).costing(terms.cost);
        if let Some(advice) = self.missing_mandatory(&asking) {
            return Asked::Now(Err(Trouble::NoKey(advice)));
        }
        if terms.counting == Counting::Before
            && let Some(verdict) = self.engine.try_check(&asking)
        {
            let found = verdict.map(Found::settled);
            return Asked::Now(found.map_err(Trouble::from));
        }
        let question = Question {
            gate: Arc::clone(self),
            values: values().map(|value| value.map(str::to_owned)).collect(),
            endpoint: request.path().to_owned(),
            method: request.method.as_str().to_owned(),
            cost: terms.cost,
        };
        Asked::Later(Box::pin(question.ask(terms.counting)))
    }

    /// Returns instructions for the developer if a rule or a list needs a mandatory attribute that the layer
    /// could not determine. Only a misconfigured server lacks one: an address.
    fn missing_mandatory(&self, asking: &Request<'_>) -> Option<&'static str> {
        let mandatory = self.attributes.iter().filter(|attribute| attribute.extractor.is_mandatory());
        let mandatory = mandatory.map(|attribute| (&*attribute.name, attribute.extractor.advice()));
        let is_extracted = |name: &str| self.attributes.iter().any(|attribute| *attribute.name == *name);
        let unextracted = (!is_extracted(ADDRESS)).then_some((ADDRESS, NO_ADDRESS_EXTRACTOR));
        let mut missing =
            mandatory.chain(unextracted).filter(|(name, _)| asking.attribute(name).is_none()).peekable();
        missing.peek()?;
        let rules = self.engine.rules();
        missing.find(|(name, _)| rules.needs(name, asking)).map(|(_, advice)| advice)
    }

    /// Returns the attributes that have a value. `endpoint` and `method` come last, because the first value
    /// of a name counts.
    fn attributes<'a>(
        &'a self,
        values: impl Iterator<Item = Option<&'a str>>,
        endpoint: &'a str,
        method: &'a str,
    ) -> Vec<(&'a str, &'a str)> {
        let mut given = Vec::with_capacity(self.attributes.len() + 2);
        let named = self.attributes.iter().zip(values);
        given.extend(named.filter_map(|(attribute, value)| Some((&*attribute.name, value?))));
        given.extend([("endpoint", endpoint), ("method", method)]);
        given
    }
}

impl Question {
    async fn ask(self, counting: Counting) -> Result<Found, Trouble> {
        let engine = Arc::clone(&self.gate.engine);
        let given = self.attributes();
        let request = Request::new(&given).costing(self.cost);
        Ok(match counting {
            Counting::Before => Found::settled(engine.check(&request).await?),
            Counting::Reserving => {
                let reservation = engine.reserve(&request).await?;
                Found::new(reservation.verdict().clone(), move || {
                    Settled::Later(Box::pin(async move {
                        // The observer reports failures. Units that cannot be refunded stay spent.
                        let _ = engine.refund(reservation).await;
                        None
                    }))
                })
            }
            Counting::After => {
                let verdict = engine.look(&request).await?;
                drop(given);
                Found::new(verdict, move || Settled::Later(Box::pin(self.charge())))
            }
        })
    }

    /// Counts a request after its response, on each rule independently. Neither a denial nor a failure
    /// changes the response.
    async fn charge(self) -> Option<Finding> {
        let given = self.attributes();
        let verdict = self.gate.engine.record(&Request::new(&given).costing(self.cost)).await;
        verdict.ok().map(Finding::from)
    }

    fn attributes(&self) -> Vec<(&str, &str)> {
        self.gate.attributes(self.values.iter().map(Option::as_deref), &self.endpoint, &self.method)
    }
}
