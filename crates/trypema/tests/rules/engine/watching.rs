//! Rule files that change while they are watched.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use trypema::RateLimiter;
use trypema::rules::{Engine, FileWatcher, InvalidRules, RuleSet, RulesFile};

/// Much longer than a reload takes, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

type Reload = Result<Arc<RuleSet>, InvalidRules>;

/// A directory that is deleted when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trypema-watching-{}-{count}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("rules.yaml")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Rules with one limit, whose number identifies the version.
fn with_limit(limit: u64) -> String {
    format!(
        "rules:\n  - {{id: all, scope: global, strategy: {{fixed_window: {{limit: {limit}, window: 1h}}}}}}\n"
    )
}

fn limit(rules: &RuleSet) -> u64 {
    let strategy = serde_json::to_value(&rules.rules().next().unwrap().strategy).unwrap();
    strategy["fixed_window"]["limit"].as_u64().unwrap()
}

/// An engine that watches a file.
struct Watched {
    engine: Arc<Engine>,
    watcher: FileWatcher,
    reloads: Receiver<Reload>,
}

impl Watched {
    fn new(path: &Path) -> Self {
        let mut file = RulesFile::new(path);
        let rules = file.read().unwrap();
        let limiter = Arc::new(RateLimiter::builder().build().unwrap());
        let engine = Arc::new(Engine::local(limiter, rules));
        let (sender, reloads) = mpsc::channel();
        let watcher = engine.watch_file(file, move |reload| drop(sender.send(reload))).unwrap();
        Self { engine, watcher, reloads }
    }

    /// The limit of the next reload, which must be in force.
    fn next_limit(&self) -> u64 {
        let rules = self.reloads.recv_timeout(DEADLINE).unwrap().unwrap();
        assert!(Arc::ptr_eq(&rules, &self.engine.rules()), "what is told is in force");
        limit(&rules)
    }

    /// The error of the next version of the file.
    fn next_error(&self) -> String {
        let before = self.engine.rules();
        let error = self.reloads.recv_timeout(DEADLINE).unwrap().unwrap_err().to_string();
        assert!(Arc::ptr_eq(&before, &self.engine.rules()), "the old rules are in force");
        error
    }
}

#[test]
fn each_way_of_changing_a_file_is_noticed() {
    let directory = Directory::new();
    let (file, beside) = (directory.file(), directory.0.join("rules.yaml.new"));
    fs::write(&file, with_limit(1)).unwrap();
    let watched = Watched::new(&file);
    fs::write(&file, with_limit(2)).unwrap();
    assert_eq!(watched.next_limit(), 2, "written in place");
    fs::write(&beside, with_limit(3)).unwrap();
    fs::rename(&beside, &file).unwrap();
    assert_eq!(watched.next_limit(), 3, "replaced by a rename");
    fs::write(&file, "rules:\n  - {id: all, scope: galaxy}\n").unwrap();
    let error = watched.next_error();
    assert!(error.contains("rules.yaml:2: ") && error.contains("galaxy"), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(watched.next_error().contains("cannot be read"));
    fs::write(&file, with_limit(4)).unwrap();
    assert_eq!(watched.next_limit(), 4, "created again");
    assert_eq!(
        watched.reloads.try_recv().unwrap_err(),
        mpsc::TryRecvError::Empty,
        "each version is told once"
    );
}

/// Kubernetes swaps the directory behind a symbolic link. The path of the file never changes.
#[cfg(unix)]
#[test]
fn a_swapped_link_is_noticed() {
    use std::os::unix::fs::symlink;
    let directory = Directory::new();
    for version in 1..=2 {
        let path = directory.0.join(format!("v{version}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("rules.yaml"), with_limit(version)).unwrap();
    }
    symlink("v1", directory.0.join("..data")).unwrap();
    symlink("..data/rules.yaml", directory.file()).unwrap();
    let watched = Watched::new(&directory.file());
    symlink("v2", directory.0.join("..data_tmp")).unwrap();
    fs::rename(directory.0.join("..data_tmp"), directory.0.join("..data")).unwrap();
    assert_eq!(watched.next_limit(), 2);
}

/// The first half of a file may be valid by itself. The file is read only after it was the same in two polls.
#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let directory = Directory::new();
    fs::write(directory.file(), with_limit(1)).unwrap();
    let mut file = RulesFile::new(directory.file());
    file.read().unwrap();
    for half in 2..10 {
        fs::write(directory.file(), format!("{}# {}\n", with_limit(half), "x".repeat(half as usize)))
            .unwrap();
        assert!(file.poll().is_none());
    }
    let whole = file.poll().unwrap().unwrap();
    assert_eq!(limit(&whole), 9);
    assert!(file.poll().is_none() && file.poll().is_none(), "it is read once");
    fs::remove_file(directory.file()).unwrap();
    assert!(file.poll().is_none(), "it may be back in a moment");
    fs::write(directory.file(), with_limit(11)).unwrap();
    assert!(file.poll().is_none());
    assert_eq!(limit(&file.poll().unwrap().unwrap()), 11);
}

/// `reload` reads the file even if it has not changed.
#[test]
fn a_reload_is_at_once() {
    let directory = Directory::new();
    fs::write(directory.file(), with_limit(1)).unwrap();
    let watched = Watched::new(&directory.file());
    watched.watcher.reload();
    assert_eq!(watched.next_limit(), 1);
}

/// Whether the watcher thread has ended: it then drops its callback, and with it the channel.
fn ended(reloads: &Receiver<Reload>) -> bool {
    reloads.recv_timeout(DEADLINE).is_err_and(|error| error == RecvTimeoutError::Disconnected)
}

#[test]
fn the_watch_ends_with_its_watcher_and_with_the_engine() {
    let directory = Directory::new();
    fs::write(directory.file(), with_limit(1)).unwrap();
    let Watched { engine, watcher, reloads } = Watched::new(&directory.file());
    drop(watcher);
    assert!(ended(&reloads));
    drop(engine);

    let Watched { engine, watcher, reloads } = Watched::new(&directory.file());
    let gone: Weak<Engine> = Arc::downgrade(&engine);
    drop(engine);
    assert!(gone.upgrade().is_none(), "the thread does not keep the engine alive");
    assert!(ended(&reloads));
    watcher.reload();
}

#[test]
fn a_detached_watch_goes_on() {
    let directory = Directory::new();
    fs::write(directory.file(), with_limit(1)).unwrap();
    let Watched { engine, watcher, reloads } = Watched::new(&directory.file());
    watcher.detach();
    fs::write(directory.file(), with_limit(2)).unwrap();
    assert_eq!(limit(&reloads.recv_timeout(DEADLINE).unwrap().unwrap()), 2);
    drop(engine);
    assert!(ended(&reloads));
}
