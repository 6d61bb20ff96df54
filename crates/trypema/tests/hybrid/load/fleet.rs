//! Instances in one process, each with its own connection, and a record of the calls that they admitted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisKey;
use trypema::{AbsoluteLimit, RateLimiter};
use trypema_testkit::redis::Server;

/// The load on a fleet.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) instances: u64,
    /// The rate of all instances together.
    pub(crate) per_second: u64,
    pub(crate) lasting: Duration,
}

pub(crate) struct Fleet<'a> {
    server: &'a Server,
}

/// The result of a run.
pub(crate) struct Run {
    /// The admitted calls, in the order in which they began.
    pub(crate) admitted: Vec<Admitted>,
    pub(crate) offered: u64,
    /// The number of script calls that Redis executed.
    pub(crate) calls: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "admitted {} of {} with {} calls of Redis", self.admitted.len(), self.offered, self.calls)
    }
}

/// The start and end of a call in microseconds. It was admitted at some time in between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Admitted {
    began: u64,
    ended: u64,
}

/// The largest number of calls that were certainly admitted within one interval of this length.
pub(crate) fn most_in(admitted: &[Admitted], window: Duration) -> u64 {
    let window = window.as_micros() as u64;
    let inside = |(first, from): (usize, &Admitted)| {
        let end = from.began + window;
        let last = admitted.partition_point(|call| call.began < end);
        admitted[first..last].iter().filter(|call| call.ended < end).count()
    };
    admitted.iter().enumerate().map(inside).max().unwrap_or(0) as u64
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(server: &'a Server) -> Self {
        Self { server }
    }

    pub(crate) fn run(&self, key: &str, limit: AbsoluteLimit, load: Load) -> Run {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let before = script_calls(self.server);
        let run = runtime.block_on(self.offer(RedisKey::try_from(key).unwrap(), limit, load));
        Run { calls: script_calls(self.server) - before, ..run }
    }

    async fn offer(&self, key: RedisKey, limit: AbsoluteLimit, load: Load) -> Run {
        let mut instances = Vec::new();
        for _ in 0..load.instances {
            let connection = trypema_testkit::blocking::dial(&self.server.url()).await;
            let limiter = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(5));
            let limiter = Arc::new(limiter.build().unwrap());
            tokio::spawn(limiter.hybrid().keep_in_sync());
            instances.push(tokio::spawn(one(limiter, key.clone(), limit, load)));
        }
        let mut all = Run { admitted: Vec::new(), offered: 0, calls: 0 };
        for instance in instances {
            let run = instance.await.unwrap();
            all.admitted.extend(run.admitted);
            all.offered += run.offered;
        }
        all.admitted.sort_unstable();
        all
    }
}

/// The number of script calls that Redis has executed.
pub(crate) fn script_calls(server: &Server) -> u64 {
    let info = server.info("commandstats").unwrap();
    let calls = |command: &str| {
        let line = info.text(command).to_owned();
        line.split(',').find_map(|part| part.strip_prefix("calls=")?.parse::<u64>().ok()).unwrap_or(0)
    };
    calls("cmdstat_evalsha") + calls("cmdstat_eval")
}

/// Runs one instance: small groups of calls, as many as the rate requires by the elapsed time.
async fn one(limiter: Arc<RateLimiter>, key: RedisKey, limit: AbsoluteLimit, load: Load) -> Run {
    let started = SystemClock.now().as_micros();
    let mut run = Run { admitted: Vec::new(), offered: 0, calls: 0 };
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    loop {
        ticks.tick().await;
        let elapsed = SystemClock.now().as_micros() - started;
        if elapsed > load.lasting.as_micros() as u64 {
            limiter.hybrid().release().await;
            return run;
        }
        let due = elapsed * load.per_second / load.instances / 1_000_000;
        while run.offered < due {
            run.offered += 1;
            let began = SystemClock.now().as_micros();
            let is_allowed = match limiter.hybrid().absolute().try_take(&key, &limit, 1) {
                Some(decision) => decision.is_allowed(),
                None => limiter.hybrid().absolute().take(&key, &limit, 1).await.unwrap().is_allowed(),
            };
            if is_allowed {
                run.admitted.push(Admitted { began, ended: SystemClock.now().as_micros() });
            }
        }
    }
}
