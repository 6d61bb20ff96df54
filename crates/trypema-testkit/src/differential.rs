//! Random differential tests: one trace on two subjects, with every field compared at every step.

mod step;
mod walk;

use std::fmt;

pub use step::{KEYS, Reply, Step, Verb};
pub use walk::{Changes, Walk};

use crate::model::Model;
use crate::subject::{LocalStrategy, LocalSubject, ModelSubject, Subject};
#[cfg(feature = "redis")]
use crate::subject::{RedisStrategy, RedisSubject};
#[cfg(feature = "redis")]
use trypema::redis::RedisConnection;

/// Two subjects that answered differently, with the trace that led to it.
#[derive(Debug)]
pub struct Difference {
    /// The strategy.
    pub strategy: &'static str,
    /// The seed that replays the trace.
    pub seed: u64,
    /// The steps and the model's answers; the last one differs.
    pub trace: Vec<String>,
    /// The model's answer to the last step.
    pub expected: String,
    /// The subject's answer to the last step.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} differs from its model, seed {}", self.strategy, self.seed)?;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "model   {}", self.expected)?;
        write!(f, "subject {}", self.actual)
    }
}

/// Plays the trace of `seed` on the local provider and on its model. Returns the number of steps.
pub fn local<M: LocalStrategy>(seed: u64) -> Result<usize, Box<Difference>> {
    against_model::<M, _>(seed, &mut LocalSubject::<M>::default())
}

/// Plays the trace of `seed` on the Redis provider, with its own keys, and on its model. Returns the number
/// of steps.
#[cfg(feature = "redis")]
pub fn redis<M: RedisStrategy>(connection: &RedisConnection, seed: u64) -> Result<usize, Box<Difference>> {
    let prefix = format!("{}_{}_{seed}", M::NAME, std::process::id());
    against_model::<M, _>(seed, &mut RedisSubject::<M>::on(connection, &prefix))
}

/// Plays the trace of `seed` on a fresh `subject` and on its model. Returns the number of steps.
pub fn against_model<M, S>(seed: u64, subject: &mut S) -> Result<usize, Box<Difference>>
where
    M: Model,
    S: Subject<Limit = M::Limit>,
{
    let mut model = ModelSubject::<M>::default();
    let mut walk = Walk::<M>::new(seed);
    if S::CAN_OVERDRAW {
        walk = walk.overdrawing();
    }
    let mut played = Vec::new();
    while let Some(step) = walk.next_step() {
        let expected = step.play(&mut model);
        let actual = step.play(subject);
        let is_same = expected == actual;
        walk.note(&step, &expected);
        played.push((step, expected));
        if !is_same {
            let line = |(step, reply): &(Step<M::Limit>, Reply)| format!("{step} -> {reply:?}");
            let expected = played.last().map(|(_, reply)| format!("{reply:?}"));
            return Err(Box::new(Difference {
                strategy: M::NAME,
                seed,
                trace: played.iter().map(line).collect(),
                expected: expected.unwrap_or_default(),
                actual: format!("{actual:?}"),
            }));
        }
    }
    Ok(played.len())
}
