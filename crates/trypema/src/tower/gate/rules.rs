//! Rules, asked by the attributes of a request.

use std::sync::Arc;

use super::super::incoming::Incoming;
use super::super::key::{Key, KeyExtractor};
use super::{Asked, Counting, Finding, Found, Settled, Terms, Trouble};
use crate::rules::{Engine, Request};

/// The attribute that rules by address are made of. Every request has one, so a layer that cannot tell it is set up wrongly.
const ADDRESS: &str = "ip";

const NO_ADDRESS_EXTRACTOR: &str = "A rule needs the attribute `ip`, which this layer does not set: add \
    `.attribute(\"ip\", PeerIpKeyExtractor)` or, behind proxies, a `SmartIpKeyExtractor`, and serve with \
    `into_make_service_with_connect_info::<SocketAddr>()`.";

/// Rules, and how to get the attributes that they ask for.
pub(in super::super) struct RulesGate {
    pub(in super::super) engine: Arc<Engine>,
    pub(in super::super) attributes: Vec<Attribute>,
}

/// An attribute of requests.
pub(in super::super) struct Attribute {
    pub(in super::super) name: Box<str>,
    pub(in super::super) extractor: Box<dyn KeyExtractor>,
}

/// What rules are asked, for when the request itself is gone.
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

    /// The advice about an attribute that a rule or a list needs for this request and that only a server that is set up
    /// wrongly cannot tell: an address.
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

    /// The attributes that have a value. What every request has comes last, because the first of a name counts.
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
                        // The observer knows of a failure; what cannot be given back stays spent.
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

    /// Counts what has happened, on each rule. The response is made, so a denial or a failure changes nothing for it.
    async fn charge(self) -> Option<Finding> {
        let given = self.attributes();
        let verdict = self.gate.engine.record(&Request::new(&given).costing(self.cost)).await;
        verdict.ok().map(Finding::from)
    }

    fn attributes(&self) -> Vec<(&str, &str)> {
        self.gate.attributes(self.values.iter().map(Option::as_deref), &self.endpoint, &self.method)
    }
}
