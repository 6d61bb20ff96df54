//! Watches the source of the rules, and puts changes in force.
//!
//! `rules` reads and stores rules, `app` decides with them; the tasks of this module connect the two.

mod database;
mod file;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::app::App;
use crate::background_tasks::BackgroundTasks;
use crate::rules::WatchedSource;

/// Spawns the tasks that watch the rules of `app`. None of them ends by itself. Notifying `reload` makes
/// them read the rules immediately.
pub(crate) fn spawn(background: &mut BackgroundTasks, app: &Arc<App>, reload: Arc<Notify>) {
    match app.watched_source().clone() {
        WatchedSource::File(source) => {
            background.spawn("rules file", file::watch(Arc::clone(app), source, reload));
        }
        WatchedSource::Database(rule_store) => {
            background.spawn("rules: LISTEN", database::listen_to_database(Arc::clone(&rule_store)));
            background.spawn("rules: Redis Pub/Sub", database::listen_to_redis(Arc::clone(&rule_store)));
            background.spawn("rules: database", database::watch(Arc::clone(app), rule_store, reload));
        }
    }
}
