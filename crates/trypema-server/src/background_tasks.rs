//! The background tasks of the server, by name.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// Tasks that run until the server stops. Dropping it aborts them.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl BackgroundTasks {
    /// Spawns a task, which must not end by itself.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits until a task has ended, and describes which one and why.
    pub(crate) async fn ended(&mut self) -> String {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let name = |id| self.names.get(&id).copied().unwrap_or("unnamed");
        match ended {
            Ok((id, ())) => format!("{}: it returned", name(id)),
            Err(error) => format!("{}: {error}", name(error.id())),
        }
    }

    /// Aborts all tasks, and waits until they have ended.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_task_that_ended_is_named() {
        let mut tasks = BackgroundTasks::default();
        tasks.spawn("patient", std::future::pending());
        tasks.spawn("hasty", async {});
        assert_eq!(tasks.ended().await, "hasty: it returned");
        tasks.stop().await;
    }
}
