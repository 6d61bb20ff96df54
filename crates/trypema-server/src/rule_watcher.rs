//! Watches the source of the rules, and puts changes in force.
//!
//! `rules` reads and stores rules, `app` decides with them; the tasks of this module connect the two.

mod database;
mod file;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::app::App;
use crate::background_tasks::BackgroundTasks;
use crate::rules::Following;

/// Spawns the tasks that watch the rules of `app`. None of them ends by itself. Notifying `reload` makes
/// them read the rules immediately.
pub(crate) fn spawn(background: &mut BackgroundTasks, app: &Arc<App>, reload: Arc<Notify>) {
    match app.following().clone() {
        Following::File(source) => {
            background.spawn("rules file", file::watch(Arc::clone(app), source, reload));
        }
        Following::Book(book) => {
            background.spawn("rules: LISTEN", database::hear_database(Arc::clone(&book)));
            background.spawn("rules: Redis Pub/Sub", database::hear_redis(Arc::clone(&book)));
            background.spawn("rules: SIGHUP", database::hear_reload(Arc::clone(&book), reload));
            background.spawn("rules: database", database::follow(Arc::clone(app), book));
        }
    }
}
