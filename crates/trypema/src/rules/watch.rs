//! Watches a rules file on a thread, and puts changes into force.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;

use super::engine::Engine;
use super::file::RulesFile;
use super::problem::InvalidRules;
use super::set::RuleSet;

/// A handle to a watched file, returned by [`Engine::watch_file`]. Dropping it ends the watch.
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
    /// Reads the file now, whether or not it has changed. For signals such as `SIGHUP`. Returns before the
    /// file is read.
    pub fn reload(&self) {
        // Sending fails only if the thread has ended: the engine was dropped, or `on_reload` panicked.
        let _ = self.commands.send(Command::Reload);
    }

    /// Keeps watching until the engine is dropped.
    pub fn detach(self) {
        let _ = self.commands.send(Command::Detach);
    }
}

impl Engine {
    /// Watches a rules file: compiles it after every change and puts it into force.
    ///
    /// An invalid file changes nothing: the rules in force stay. `on_reload` is called for each version of
    /// the file, either with the rules now in force or with the problems of the file.
    ///
    /// Starts one thread, which needs no async runtime and polls the file every
    /// [`POLL_INTERVAL`](RulesFile::POLL_INTERVAL); see [`RulesFile`] for the changes that it detects. The
    /// thread does not keep the engine alive. It ends within one interval after the last `Arc` of the engine
    /// or the returned [`FileWatcher`] is dropped, and if `on_reload` panics.
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
    /// The operating system cannot start a thread.
    pub fn watch_file(
        self: &Arc<Self>,
        file: RulesFile,
        on_reload: impl FnMut(Result<Arc<RuleSet>, InvalidRules>) + Send + 'static,
    ) -> io::Result<FileWatcher> {
        let (commands, received) = mpsc::channel();
        let watch = WatchLoop { engine: Arc::downgrade(self), file, on_reload };
        thread::Builder::new().name("trypema-rules".to_owned()).spawn(move || watch.run(&received))?;
        Ok(FileWatcher { commands })
    }
}

struct WatchLoop<F> {
    engine: Weak<Engine>,
    file: RulesFile,
    on_reload: F,
}

impl<F: FnMut(Result<Arc<RuleSet>, InvalidRules>)> WatchLoop<F> {
    /// Watches until the engine is dropped, or until the watcher is dropped without `detach`.
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
