//! The whole simulated world, and its events.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::hybrid::Pace;
use trypema::strategy::Leasable;

use super::fault::Fault;
use super::instance::{Instance, Moment, Rule, Running, Sent, Waiting};
use super::journal::{Fate, Held, Journal, Offered};
use super::message::{Reply, Request, Sender, What};
use super::network::Way;
use super::store::Store;
use super::{Fleet, Offer, WORLD};
use crate::random::Random;
use crate::simulator::schedule::{Actor, Schedule};

/// An event.
#[derive(Debug)]
pub(super) enum Event<S: Leasable> {
    Offered(Offer),
    Arrived(Box<Request>),
    Answered(Box<Reply<S>>),
    Overdue {
        from: Sender,
        number: u64,
    },
    LooksAround(Sender),
    GoesWrong(usize),
    /// A copy for a later failover is made.
    IsCopied(usize),
    Restarts(u32),
    IsSampled,
}

pub(super) struct World<S: Leasable, I> {
    fleet: Fleet<S>,
    offers: I,
    paces: Vec<Pace>,
    intervals_us: Vec<u64>,
    instances: Vec<Instance<S>>,
    /// Whether the periodic sweep of each instance is scheduled.
    is_looking: Vec<bool>,
    store: Store<S>,
    copies: BTreeMap<usize, Store<S>>,
    random: Random,
    journal: Journal,
    outbox: Vec<Request>,
    is_over: bool,
}

impl<S: Leasable, I: Iterator<Item = Offer>> World<S, I> {
    pub(super) fn new(fleet: Fleet<S>, offers: I) -> Self {
        let pace = |limit: &S::Limit| Pace::of::<S>(limit, fleet.sync_us);
        let paces: Vec<Pace> = fleet.limits.iter().map(pace).collect();
        let intervals_us = paces.iter().map(|pace: &Pace| pace.interval_us()).collect();
        let mut world = Self {
            offers,
            paces,
            intervals_us,
            instances: Vec::new(),
            is_looking: vec![false; fleet.clocks.len()],
            store: Store::new(),
            copies: BTreeMap::new(),
            random: Random::seeded(fleet.seed),
            journal: Journal::default(),
            outbox: Vec::new(),
            is_over: false,
            fleet,
        };
        let count = world.fleet.clocks.len() as u32;
        world.instances =
            (0..count).map(|instance| world.instance(Sender { instance, life: 0 }, 0)).collect();
        world
    }

    fn instance(&self, me: Sender, limit: usize) -> Instance<S> {
        let clock = self.fleet.clocks[me.instance as usize];
        Instance::new(me, clock, self.fleet.parts.max(1), self.rule(limit))
    }

    fn rule(&self, place: usize) -> Rule<'_, S> {
        let (pace, interval_us) = (self.paces[place], self.intervals_us[place]);
        Rule { place, limit: &self.fleet.limits[place], pace, interval_us }
    }

    /// Schedules the events that are known from the start.
    pub(super) fn begin(&mut self, schedule: &mut Schedule<Event<S>>) {
        for (index, fault) in self.fleet.faults.iter().enumerate() {
            if let Fault::Failover { lost_us } = fault.fault {
                let copied = fault.after_us.saturating_sub(lost_us);
                schedule.at(self.at(copied), WORLD, Event::IsCopied(index));
            }
            schedule.at(self.at(fault.after_us), WORLD, Event::GoesWrong(index));
        }
        if self.fleet.sample_us > 0 {
            schedule.at(self.at(self.fleet.sample_us), WORLD, Event::IsSampled);
        }
        self.schedule_next_offer(schedule);
    }

    pub(super) fn into_journal(self) -> Journal {
        self.journal
    }

    fn at(&self, after_us: u64) -> Timestamp {
        Timestamp::from_micros(self.fleet.start_us + after_us)
    }

    fn schedule_next_offer(&mut self, schedule: &mut Schedule<Event<S>>) {
        match self.offers.next() {
            Some(offer) => schedule.at(self.at(offer.after_us), WORLD, Event::Offered(offer)),
            None => self.is_over = true,
        }
    }

    /// Lets an instance act, and sends its requests.
    fn act<R>(
        &mut self,
        instance: u32,
        schedule: &mut Schedule<Event<S>>,
        act: impl FnOnce(&mut Instance<S>, &mut Moment<'_>) -> R,
    ) -> R {
        let now = schedule.now();
        let actor = &mut self.instances[instance as usize];
        let now_us = now.as_micros();
        let local = actor.clock().at(self.fleet.start_us, now_us - self.fleet.start_us);
        let mut moment = Moment { now_us, local, journal: &mut self.journal, outbox: &mut self.outbox };
        let result = act(actor, &mut moment);
        self.post(schedule);
        result
    }

    fn post(&mut self, schedule: &mut Schedule<Event<S>>) {
        let now = schedule.now();
        for request in std::mem::take(&mut self.outbox) {
            let way = self.fleet.network.request(&mut self.random);
            if let Way::Takes(us) = way {
                schedule.at(now + Duration::from_micros(us), WORLD, Event::Arrived(Box::new(request)));
            }
            if let What::Lease { number, .. } = request.what {
                // An instance notices immediately if a request cannot be sent.
                let after_us = if way == Way::Unsent { 0 } else { self.fleet.deadline_us };
                let number = if way == Way::Unsent { number | UNSENT } else { number };
                let overdue = Event::Overdue { from: request.from, number };
                schedule.at(now + Duration::from_micros(after_us), WORLD, overdue);
            }
        }
    }

    fn offered(&mut self, offer: Offer, schedule: &mut Schedule<Event<S>>) {
        let Offer { instance, key, cost, .. } = offer;
        let call = self.journal.offers.len();
        let at_us = schedule.now().as_micros();
        self.journal.offers.push(Offered { at_us, instance, key, cost, fate: Fate::Unanswered });
        let actor = &self.instances[instance as usize];
        if actor.state == Running::Up {
            let me = actor.me;
            if !std::mem::replace(&mut self.is_looking[instance as usize], true) {
                self.schedule_look(me, schedule);
            }
            let patience = Duration::from_micros(self.fleet.deadline_us);
            self.act(instance, schedule, |actor, moment| {
                let until = moment.local + patience;
                actor.first_call(key, Waiting { call, cost, until, tries: 0, parts_left: 0 }, moment);
            });
        }
        self.schedule_next_offer(schedule);
    }

    fn schedule_look(&self, me: Sender, schedule: &mut Schedule<Event<S>>) {
        let after = Duration::from_micros(Pace::sweep_interval_us(self.fleet.sync_us));
        schedule.at(schedule.now() + after, WORLD, Event::LooksAround(me));
    }

    fn arrived(&mut self, request: Box<Request>, schedule: &mut Schedule<Event<S>>) {
        let now = schedule.now();
        if self.store.frozen_until() > now.as_micros() {
            let thaws = Timestamp::from_micros(self.store.frozen_until());
            schedule.at(thaws, WORLD, Event::Arrived(request));
            return;
        }
        let second = (now.as_micros() - self.fleet.start_us) / 1_000_000;
        self.journal.count(request.key, second, &request.what);
        let limit = &self.fleet.limits[request.limit];
        let Some(reply) = self.store.answer(*request, limit, now, &mut self.journal) else { return };
        if let Way::Takes(us) = self.fleet.network.reply(&mut self.random) {
            schedule.at(now + Duration::from_micros(us), WORLD, Event::Answered(Box::new(reply)));
        }
    }

    fn is_alive(&self, sender: Sender) -> bool {
        let instance = &self.instances[sender.instance as usize];
        instance.me == sender && instance.state != Running::Down
    }

    fn looks_around(&mut self, me: Sender, schedule: &mut Schedule<Event<S>>) {
        if !self.is_alive(me) {
            return;
        }
        let is_busy = self.act(me.instance, schedule, Instance::look_around);
        self.is_looking[me.instance as usize] = is_busy;
        if is_busy {
            self.schedule_look(me, schedule);
        }
    }

    fn goes_wrong(&mut self, index: usize, schedule: &mut Schedule<Event<S>>) {
        let now = schedule.now();
        let now_us = now.as_micros();
        match self.fleet.faults[index].fault {
            Fault::Freeze { for_us } => self.store.freeze(now_us + for_us),
            Fault::FlushAll => self.store.flush(now_us, &mut self.journal),
            Fault::Reset { instance, key } => {
                if self.instances[instance as usize].state == Running::Up {
                    self.act(instance, schedule, |actor, moment| actor.reset(key, moment));
                }
            }
            Fault::Failover { .. } => {
                if let Some(before) = self.copies.remove(&index) {
                    self.store.go_back(before, now_us, &mut self.journal);
                }
            }
            Fault::Kill { instance, for_us } => {
                self.instances[instance as usize].die();
                schedule.at(now + Duration::from_micros(for_us), WORLD, Event::Restarts(instance));
            }
            Fault::Stop { instance, for_us } => {
                if self.instances[instance as usize].state == Running::Up {
                    self.act(instance, schedule, Instance::leave);
                    schedule.at(now + Duration::from_micros(for_us), WORLD, Event::Restarts(instance));
                }
            }
            Fault::ChangeLimit { limit, .. } if limit >= self.fleet.limits.len() => {}
            Fault::ChangeLimit { instance, limit } => {
                let (pace, interval_us) = (self.paces[limit], self.intervals_us[limit]);
                let rule = Rule { place: limit, limit: &self.fleet.limits[limit], pace, interval_us };
                self.instances[instance as usize].change_limit(rule);
            }
        }
    }

    /// Replaces an instance that was stopped or killed by a new one, without its state.
    fn restarts(&mut self, instance: u32) {
        let old = &self.instances[instance as usize];
        if old.state != Running::Up {
            let me = Sender { life: old.me.life + 1, ..old.me };
            self.instances[instance as usize] = self.instance(me, old.limit_place());
            self.is_looking[instance as usize] = false;
        }
    }

    fn sample(&mut self, schedule: &mut Schedule<Event<S>>) {
        let now = schedule.now();
        let elapsed_us = now.as_micros() - self.fleet.start_us;
        let held = |actor: &Instance<S>| actor.held(actor.clock().at(self.fleet.start_us, elapsed_us));
        let units = self.instances.iter().map(held).sum();
        self.journal.held.push(Held { at_us: now.as_micros(), units });
        if !self.is_over {
            schedule.at(now + Duration::from_micros(self.fleet.sample_us), WORLD, Event::IsSampled);
        }
    }
}

/// Marks the number of a request that was never sent.
const UNSENT: u64 = 1 << 63;

impl<S: Leasable, I: Iterator<Item = Offer>> Actor for World<S, I> {
    type Event = Event<S>;

    fn on_event(&mut self, event: Event<S>, schedule: &mut Schedule<Event<S>>) {
        match event {
            Event::Offered(offer) => self.offered(offer, schedule),
            Event::Arrived(request) => self.arrived(request, schedule),
            Event::Answered(reply) => {
                let (from, deadline_us) = (reply.request.from, self.fleet.deadline_us);
                if self.is_alive(from) {
                    self.act(from.instance, schedule, |actor, moment| {
                        actor.answered(&reply, deadline_us, moment);
                    });
                }
            }
            Event::Overdue { from, number } => {
                if self.is_alive(from) {
                    let sent = if number & UNSENT > 0 { Sent::Not } else { Sent::Perhaps };
                    self.instances[from.instance as usize].failed(number & !UNSENT, sent);
                }
            }
            Event::LooksAround(me) => self.looks_around(me, schedule),
            Event::GoesWrong(index) => self.goes_wrong(index, schedule),
            Event::IsCopied(index) => {
                self.copies.insert(index, self.store.copied());
            }
            Event::Restarts(instance) => self.restarts(instance),
            Event::IsSampled => self.sample(schedule),
        }
    }
}
