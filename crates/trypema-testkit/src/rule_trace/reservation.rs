//! Steps on reservations: their requests and answers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trypema::TrypemaError;
use trypema::rules::{Period, SettledStatus, Settlement};

use super::answer::RuleAnswer;
use super::request::{CheckBody, Mode, SetBody};

/// A body of `POST /v1/reserve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReserveBody {
    /// The attributes of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<BTreeMap<String, String>>,
    /// The cost in the unit `requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The costs by unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<BTreeMap<String, u64>>,
    /// Several attribute sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Vec<SetBody>>,
    /// The time after which the reservation expires; one minute if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Period>,
    /// The id that the caller chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl ReserveBody {
    /// The time after which a reservation expires that names none.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(60);

    /// Returns the time after which the reservation expires.
    pub fn ttl(&self) -> Duration {
        self.ttl.as_ref().map_or(Self::DEFAULT_TTL, |ttl| ttl.0)
    }

    /// Returns the request as a check.
    pub fn as_check(&self) -> CheckBody {
        let Self { attributes, cost, costs, sets, .. } = self.clone();
        CheckBody { attributes, cost, costs, sets, mode: Mode::Check }
    }

    /// Returns the reservation of a check's request.
    pub fn of_check(check: CheckBody) -> Self {
        let CheckBody { attributes, cost, costs, sets, .. } = check;
        Self { attributes, cost, costs, sets, ..Self::default() }
    }
}

/// A body of `POST /v1/settle`, with the name of the reservation in the trace in place of its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// The name that a step gave to the reservation, or any text.
    pub reservation: String,
    /// The real cost of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, u64>,
}

/// A body of `POST /v1/release`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {
    /// See [`SettleBody::reservation`].
    pub reservation: String,
}

/// A body of `POST /v1/renew`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewBody {
    /// See [`SettleBody::reservation`].
    pub reservation: String,
    /// The time after which the reservation expires, from now on.
    pub ttl: Period,
}

/// The answer to a reservation: the decision of the rules and, if it is allowed, the reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveAnswer {
    /// The decision of the rules.
    pub verdict: RuleAnswer,
    /// The reservation. `None` if the request is denied, or fails.
    pub reserved: Option<ReservedAnswer>,
}

/// A reservation that was made or found, written `60s`, `45s again`, or `45s ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReservedAnswer {
    /// The time after which it expires.
    pub expires_in: Duration,
    /// Whether an earlier request made it.
    pub is_repeated: bool,
    /// Whether it has been settled or released since.
    pub is_ended: bool,
}

/// The results of settling or releasing a reservation, by the name of the counter.
pub type Settled = BTreeMap<String, SettledAnswer>;

/// The result at one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SettledAnswer {
    /// It is settled, written `RESERVED spent COUNTED refunded REFUNDED`.
    Settled {
        /// The units that were reserved.
        reserved: u64,
        /// The units that were really spent.
        counted: u64,
        /// The units that are free again.
        refunded: u64,
    },
    /// It was settled before.
    Before,
    /// It does not know the reservation.
    Unknown,
    /// No rule has the counter any more.
    Removed,
}

/// The time after which a renewed reservation expires, written `30s`; `gone` if it is not outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RenewedAnswer(pub Option<Duration>);

/// Returns the results of a settlement.
pub(super) fn settled_of(settlement: Result<Settlement, TrypemaError>) -> Result<Settled, String> {
    let answer = |status: &SettledStatus| match status {
        SettledStatus::Settled { reserved, counted, refunded } => {
            Ok(SettledAnswer::Settled { reserved: *reserved, counted: *counted, refunded: *refunded })
        }
        SettledStatus::SettledBefore => Ok(SettledAnswer::Before),
        SettledStatus::NotOutstanding => Ok(SettledAnswer::Unknown),
        SettledStatus::RuleRemoved => Ok(SettledAnswer::Removed),
        SettledStatus::Failed(error) => Err(error.to_string()),
        other => Err(format!("unknown status {other:?}")),
    };
    let settlement = settlement.map_err(|error| error.to_string())?;
    settlement.rules.iter().map(|rule| Ok((rule.key.clone(), answer(&rule.status)?))).collect()
}

impl fmt::Display for ReserveAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        self.reserved.iter().try_for_each(|reserved| write!(f, "; reserved {}", String::from(*reserved)))
    }
}

impl From<ReservedAnswer> for String {
    fn from(ReservedAnswer { expires_in, is_repeated, is_ended }: ReservedAnswer) -> Self {
        let state = match (is_ended, is_repeated) {
            (true, _) => " ended",
            (false, true) => " again",
            (false, false) => "",
        };
        format!("{}{state}", Period(expires_in))
    }
}

impl TryFrom<String> for ReservedAnswer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (time, state) = text.split_once(' ').unwrap_or((&text, ""));
        let (is_repeated, is_ended) = match state {
            "" => (false, false),
            "again" => (true, false),
            "ended" => (true, true),
            other => return Err(format!("`{other}` is no state of a reservation")),
        };
        Ok(Self { expires_in: period(time)?, is_repeated, is_ended })
    }
}

impl From<SettledAnswer> for String {
    fn from(answer: SettledAnswer) -> Self {
        match answer {
            SettledAnswer::Settled { reserved, counted, refunded } => {
                format!("{reserved} spent {counted} refunded {refunded}")
            }
            SettledAnswer::Before => "before".to_owned(),
            SettledAnswer::Unknown => "unknown".to_owned(),
            SettledAnswer::Removed => "removed".to_owned(),
        }
    }
}

impl TryFrom<String> for SettledAnswer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number"));
        match words[..] {
            [reserved, "spent", counted, "refunded", refunded] => Ok(Self::Settled {
                reserved: number(reserved)?,
                counted: number(counted)?,
                refunded: number(refunded)?,
            }),
            ["before"] => Ok(Self::Before),
            ["unknown"] => Ok(Self::Unknown),
            ["removed"] => Ok(Self::Removed),
            _ => Err(format!(
                "unknown result {text:?}: need one of `RESERVED spent COUNTED refunded REFUNDED`, `before`, \
                 `unknown`, `removed`"
            )),
        }
    }
}

impl From<RenewedAnswer> for String {
    fn from(RenewedAnswer(expires_in): RenewedAnswer) -> Self {
        expires_in.map_or_else(|| "gone".to_owned(), |time| Period(time).to_string())
    }
}

impl TryFrom<String> for RenewedAnswer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "gone" => Ok(Self(None)),
            time => period(time).map(|time| Self(Some(time))),
        }
    }
}

fn period(text: &str) -> Result<Duration, String> {
    let Period(time) = text.parse().map_err(|error| format!("{error}"))?;
    Ok(time)
}
