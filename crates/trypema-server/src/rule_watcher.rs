//! Watches where rules change, and puts the changes in force.
//!
//! `rules` reads and stores rules, `app` decides with them; the tasks here stand above both.

mod database;
mod file;

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::app::App;
use crate::rules::Following;

/// Spawns the tasks that watch the rules of `app`; none of them ends by itself. A notification of `reload` has the rules read at once.
pub(crate) fn spawn(background: &mut JoinSet<()>, app: &Arc<App>, reload: Arc<Notify>) {
    match app.following().clone() {
        Following::File(source) => {
            background.spawn(file::watch(Arc::clone(app), source, reload));
        }
        Following::Book(book) => {
            background.spawn(database::hear_database(Arc::clone(&book)));
            background.spawn(database::hear_redis(Arc::clone(&book)));
            background.spawn(database::hear_reload(Arc::clone(&book), reload));
            background.spawn(database::follow(Arc::clone(app), book));
        }
    }
}
