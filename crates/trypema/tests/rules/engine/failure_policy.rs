//! The failure policy of rules whose store fails: for every operation, policy and shared provider.

mod deadline;
mod partial;
mod table;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::redis::{OnFailure, RedisConnection};
use trypema::rules::Engine;
use trypema_testkit::redis::Cluster;

use super::rules;

/// A provider whose store can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shared {
    Redis,
    Hybrid,
}

impl Shared {
    const ALL: [Self; 2] = [Self::Redis, Self::Hybrid];

    fn engine(self, connection: &RedisConnection, setup: &Setup<'_>) -> Arc<Engine> {
        let builder = RateLimiter::builder().redis(connection.clone()).redis_deadline(setup.deadline);
        let limiter = Arc::new(builder.on_redis_failure(setup.on_failure).build().unwrap());
        Arc::new(match self {
            Self::Redis => Engine::redis(limiter, rules(setup.yaml)),
            Self::Hybrid => Engine::hybrid(limiter, rules(setup.yaml)),
        })
    }
}

/// The settings of an engine.
struct Setup<'a> {
    on_failure: OnFailure,
    deadline: Duration,
    yaml: &'a str,
}

const LOCAL: OnFailure = OnFailure::Local { instances: NonZeroU32::MIN };

/// A Cluster without automatic failover, however long a primary is down.
fn steady_cluster() -> Cluster {
    let cluster = Cluster::start().unwrap();
    for node in cluster.nodes() {
        node.control().unwrap().command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).unwrap();
    }
    cluster
}
