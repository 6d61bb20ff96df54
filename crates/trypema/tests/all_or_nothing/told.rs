//! The decisions that the observer receives for multi-key calls.

use std::sync::Mutex;
use std::time::Duration;

use trypema::Decision;
use trypema::observer::{Event, Failure, Observer};

use super::asked::{Asked, six};
use super::provider::Provider;

/// The strategy, key, cost and decision of one observed check.
type Told = (&'static str, String, u64, Decision);

/// Records every observed decision. An observed failure panics.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<Told>>);

impl Recorder {
    fn drain(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Recorder {
    fn decided(&self, event: &Event<'_>) {
        let told = (event.strategy, event.key.to_owned(), event.cost, *event.decision);
        self.0.lock().unwrap().push(told);
    }

    fn failed(&self, failure: &Failure<'_>) {
        panic!("{failure:?}");
    }
}

fn expected(asked: &[Asked], decisions: &[Decision]) -> Vec<Told> {
    let told = |(asked, decision): (&Asked, &Decision)| {
        (asked.limit.strategy(), asked.key.clone(), asked.cost, *decision)
    };
    asked.iter().zip(decisions).map(told).collect()
}

/// The observer receives each check once, in order, with its decision, even if some or all checks are denied.
/// It is not called for peeks and refunds.
pub(crate) fn each_check_is_told_once(provider: &impl Provider, recorder: &Recorder, keys: &[String; 5]) {
    let limits = six(10, Duration::from_secs(60), 2.0);
    let asked: Vec<Asked> =
        (0..6).map(|position| Asked::new(&keys[position % 5], &limits[position], 1)).collect();
    let mut denied = asked.clone();
    denied[3].cost = 11;
    for asked in [&asked, &denied, &asked[..1].to_vec(), &denied[3..4].to_vec(), &Vec::new()] {
        let taken = provider.take_all(asked).unwrap();
        assert_eq!(recorder.drain(), expected(asked, &taken.decisions));
        let reserved = provider.take_all_with_receipts(asked).unwrap();
        assert_eq!(recorder.drain(), expected(asked, &reserved.decisions));
        provider.peek_all(asked).unwrap();
        provider.refund_all(asked, &reserved.receipts);
        assert_eq!(recorder.drain(), []);
    }
}
