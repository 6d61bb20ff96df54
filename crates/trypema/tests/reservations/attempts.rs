//! Attempts under one id whose messages are late, lost, repeated and reordered, in every order: no request is allowed
//! and not counted, and an attempt that nobody was told about is counted nowhere in the end.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, OnDrop, Request, ReserveOptions};
use trypema_testkit::blocking::{connect, limiter, wait_for};
use trypema_testkit::redis::Server;

use super::rules;

const RULES: &str = "
units: [tokens]
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 2, hold: 1h}}}
  - {id: tokens, scope: user, unit: tokens, strategy: {fixed_window: {limit: 100, window: 1d}}}
";

/// A message to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Reserve(u64),
    Undo(u64),
    /// The caller that was answered settles at 10 tokens.
    Settle,
}

/// The messages of a story, of which the store may see any order, and the attempts whose caller got the answer.
struct Story {
    messages: Vec<Message>,
    answered: &'static [u64],
}

/// The stories of two attempts, and some of three. Without an answer, the engine undoes the attempt.
fn stories() -> Vec<Story> {
    use Message::{Reserve, Settle, Undo};
    let story = |messages: &[Message], answered| Story { messages: messages.to_vec(), answered };
    vec![
        story(&[Reserve(1), Reserve(1), Undo(1), Undo(1)], &[]),
        story(&[Undo(1), Undo(1)], &[]),
        story(&[Reserve(1), Undo(1), Undo(1), Reserve(2), Reserve(2)], &[2]),
        story(&[Reserve(1), Reserve(1), Undo(1), Undo(1), Reserve(2), Settle], &[2]),
        story(&[Reserve(1), Undo(1), Reserve(2), Undo(2), Undo(2)], &[]),
        story(&[Reserve(1), Reserve(1), Undo(1), Reserve(2), Reserve(2), Undo(2)], &[]),
        story(&[Reserve(1), Undo(1), Reserve(2), Undo(2), Reserve(3)], &[3]),
        story(&[Reserve(1), Undo(1), Reserve(2), Undo(2), Reserve(3), Undo(3)], &[]),
        story(&[Reserve(1), Undo(1), Reserve(2), Reserve(3), Settle], &[2, 3]),
    ]
}

/// Calls `play` with every order of the messages.
fn in_every_order(messages: &mut Vec<Message>, from: usize, play: &mut impl FnMut(&[Message])) {
    if from == messages.len() {
        return play(messages);
    }
    for at in from..messages.len() {
        if messages[from..at].contains(&messages[at]) {
            continue;
        }
        messages[from..=at].rotate_right(1);
        in_every_order(messages, from + 1, play);
        messages[from..=at].rotate_left(1);
    }
}

/// Delivers the messages in this order, under an id of their own.
fn deliver(engine: &Arc<Engine>, id: &str, order: &[Message], answered: &[u64]) {
    let (attributes, costs) = ([("user", id)], [("tokens", 30)]);
    let request = Request::new(&attributes).with_costs(&costs);
    let options = ReserveOptions::new(Duration::from_secs(600)).unwrap();
    let options = options.on_drop(OnDrop::Keep).with_id(id).unwrap();
    let mut text = None;
    let mut is_settled = false;
    for message in order {
        match *message {
            Message::Reserve(attempt) => {
                engine.number_next_attempt(attempt);
                let reserved = wait_for(engine.reserve(&request, &options));
                if answered.contains(&attempt) && text.is_none() {
                    let reserved = reserved.unwrap();
                    assert!(reserved.is_allowed(), "{order:?}");
                    text = reserved.into_text();
                }
            }
            Message::Undo(attempt) => {
                assert!(wait_for(engine.undo_attempt(&request, &options, attempt)), "{order:?}");
            }
            Message::Settle => {
                // Without an answer there is nothing to settle.
                let Some(text) = &text else { continue };
                let settled = wait_for(engine.settle(text, &[("tokens", 10)])).unwrap();
                assert!(settled.is_complete(), "{order:?}: {settled:?}");
                is_settled = true;
            }
        }
        // In no interleaving is a call allowed and not counted.
        match (is_settled, &text) {
            (true, _) => assert_eq!(left(engine, id), [2, 90], "{order:?} after {message:?}"),
            (false, Some(_)) => assert_eq!(left(engine, id), [1, 70], "{order:?} after {message:?}"),
            (false, None) => {}
        }
    }
    if answered.is_empty() {
        assert_eq!(left(engine, id), [2, 100], "{order:?}: nobody was told");
    }
}

fn left(engine: &Arc<Engine>, user: &str) -> [u64; 2] {
    let explained =
        wait_for(engine.explain(&Request::new(&[("user", user)]).with_costs(&[("tokens", 0)]))).unwrap();
    ["slots", "tokens"].map(|id| explained.applying().find(|rule| rule.decision.rule.id == id).unwrap().left)
}

/// Plays every order of every story of at most `longest` messages. Returns how many.
fn play_all(engine: &Arc<Engine>, longest: usize) -> usize {
    let mut played = 0;
    for Story { mut messages, answered } in stories().into_iter().filter(|one| one.messages.len() <= longest)
    {
        in_every_order(&mut messages, 0, &mut |order| {
            played += 1;
            deliver(engine, &format!("u{played}"), order, answered);
        });
    }
    played
}

#[test]
fn attempts_in_any_order_in_this_process() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock).build().unwrap();
    let played = play_all(&Arc::new(Engine::local(Arc::new(rl), rules(RULES))), 6);
    assert!(played > 1_000, "{played}");
}

#[test]
fn attempts_in_any_order_in_redis() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = limiter(&connect(&server.url()), "attempts", &clock).build().unwrap();
    let played = play_all(&Arc::new(Engine::redis(Arc::new(rl), rules(RULES))), 5);
    assert!(played > 200, "{played}");
}

/// A reservation that was found more often than anybody repeats a request stays reserved.
#[test]
fn confirmations_are_bounded() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock).build().unwrap();
    let engine = Arc::new(Engine::local(Arc::new(rl), rules(RULES)));
    let mut order: Vec<Message> = (1..=20).map(Message::Reserve).collect();
    order.extend((1..=20).filter(|attempt| *attempt != 15).map(Message::Undo));
    deliver(&engine, "often", &order, &[15]);
}
