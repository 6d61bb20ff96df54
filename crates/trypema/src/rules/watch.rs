//! Watches a file of rules on a thread, and puts it in force when it changes.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;

use super::engine::Engine;
use super::file::RulesFile;
use super::problem::InvalidRules;
use super::set::RuleSet;

/// A watched file: [`Engine::watch_file`] returns it. Dropping it ends the watch.
#[derive(Debug)]
#[must_use = "dropping it ends the watch; see `detach`"]
pub struct FileWatcher {
    commands: mpsc::Sender<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Reload,
    Detach,
}

impl FileWatcher {
    /// Reads the file at once, whether or not it has changed: for a signal such as `SIGHUP`. Returns before it is read.
    pub fn reload(&self) {
        // The thread ends before the watcher only if the engine is gone: there is nothing to reload then.
        let _ = self.commands.send(Command::Reload);
    }

    /// Goes on watching until the engine is dropped.
    pub fn detach(self) {
        let _ = self.commands.send(Command::Detach);
    }
}

impl Engine {
    /// Watches a file of rules: whenever it changes, compiles it and puts it in force.
    ///
    /// Invalid rules change nothing: those in force stay. `on_reload` is called for each version of the file, with the rules that are in
    /// force now, or with what is wrong with the file.
    ///
    /// Starts one thread, which needs no async runtime and polls the file every [`POLL_INTERVAL`](RulesFile::POLL_INTERVAL); see
    /// [`RulesFile`] for what it notices. The thread does not keep the engine alive. It ends within an interval after the last `Arc` of the
    /// engine or the returned [`FileWatcher`] is dropped, and when `on_reload` panics.
    ///
    /// ```
    /// use std::sync::{Arc, mpsc};
    /// use std::time::Duration;
    /// use trypema::RateLimiter;
    /// use trypema::rules::{Engine, RulesFile};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("trypema-watch-{}.yaml", std::process::id()));
    /// # std::fs::write(&path, "rules: []")?;
    /// let mut file = RulesFile::new(&path);
    /// let rules = file.read()?;
    /// let engine = Arc::new(Engine::local(Arc::new(RateLimiter::builder().build()?), rules));
    /// let (reloads, reloaded) = mpsc::channel();
    /// let watcher = engine.watch_file(file, move |reload| {
    ///     match &reload {
    ///         Ok(rules) => println!("{} rules are in force", rules.len()),
    ///         Err(invalid) => eprintln!("keeping the old rules: {invalid}"),
    ///     }
    ///     let _ = reloads.send(reload);
    /// })?;
    ///
    /// std::fs::write(&path, "rules:\n  - {id: all, scope: global, strategy: {fixed_window: {limit: 5, window: 1s}}}")?;
    /// let rules = reloaded.recv_timeout(Duration::from_secs(60))??;
    /// assert_eq!(rules.len(), 1);
    /// assert_eq!(engine.rules().len(), 1);
    /// drop(watcher);
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That the system cannot start a thread.
    pub fn watch_file(
        self: &Arc<Self>,
        file: RulesFile,
        on_reload: impl FnMut(Result<Arc<RuleSet>, InvalidRules>) + Send + 'static,
    ) -> io::Result<FileWatcher> {
        let (commands, received) = mpsc::channel();
        let watch = Watch { engine: Arc::downgrade(self), file, on_reload };
        thread::Builder::new().name("trypema-rules".to_owned()).spawn(move || watch.run(&received))?;
        Ok(FileWatcher { commands })
    }
}

struct Watch<F> {
    engine: Weak<Engine>,
    file: RulesFile,
    on_reload: F,
}

impl<F: FnMut(Result<Arc<RuleSet>, InvalidRules>)> Watch<F> {
    /// Watches until the engine is gone, or the watcher is dropped without being detached.
    fn run(mut self, commands: &mpsc::Receiver<Command>) {
        let mut is_detached = false;
        while self.engine.strong_count() > 0 {
            let read = match commands.recv_timeout(RulesFile::POLL_INTERVAL) {
                Ok(Command::Reload) => Some(self.file.read()),
                Ok(Command::Detach) => {
                    is_detached = true;
                    None
                }
                Err(RecvTimeoutError::Timeout) => self.file.poll(),
                Err(RecvTimeoutError::Disconnected) if is_detached => {
                    thread::sleep(RulesFile::POLL_INTERVAL);
                    self.file.poll()
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Some(read) = read {
                self.put_in_force(read);
            }
        }
    }

    fn put_in_force(&mut self, read: Result<RuleSet, InvalidRules>) {
        let reloaded = match read {
            Ok(rules) => {
                let Some(engine) = self.engine.upgrade() else { return };
                let rules = Arc::new(rules);
                engine.replace(Arc::clone(&rules));
                Ok(rules)
            }
            Err(invalid) => Err(invalid),
        };
        (self.on_reload)(reloaded);
    }
}
