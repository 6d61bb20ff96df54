//! Checks that modules import in one direction: a module uses only those before it in its crate's order,
//! which ARCHITECTURE.md states.

mod scan;

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use self::scan::Imports;
use crate::Step;

/// A crate whose top-level modules import in one direction.
struct Layered {
    source: &'static str,
    /// The modules in order, as ARCHITECTURE.md states them: first those that import nothing, last those
    /// that nothing imports. A module may use those before it.
    order: &'static str,
    /// Modules that import nothing and are not imported, for example pages.
    left_out: &'static [&'static str],
    exceptions: &'static [Exception],
}

/// An import against the order.
struct Exception {
    importer: &'static str,
    imported: &'static str,
}

const CRATES: [Layered; 2] = [
    Layered {
        source: "crates/trypema/src",
        order: "low_level, duration_text, error, units, clock, jitter, random, address_key → decision, observer → strategy → waiting, check → reservation → \
                provider → local → redis → hybrid → rate_limiter → rules → http → tower",
        left_out: &["pages"],
        exceptions: &[
            Exception { importer: "error", imported: "redis" },
            Exception { importer: "decision", imported: "strategy" },
            Exception { importer: "provider", imported: "local" },
            Exception { importer: "provider", imported: "redis" },
            Exception { importer: "provider", imported: "hybrid" },
        ],
    },
    Layered {
        source: "crates/trypema-server/src",
        order: "secret, clock, mode, refusal, deny_status, background_worker, background_tasks → attributes → metrics → \
                settings → log, tokens, token_file, allowed_origins, forward_auth, spans, rules, key_hashing → denial_log, config → net, \
                provider, logins → start_error → app → service → front, store_watch, permission_watch, certificate_watch → rule_watcher, \
                listeners → server → cli, testkit",
        left_out: &[],
        exceptions: &[],
    },
];

/// The crates of HTTP's types.
const HTTP: [&str; 5] = ["http", "http_body", "http_body_util", "hyper", "hyper_util"];
/// The modules of the server that may name them: the HTTP front end with its settings, and HTTP clients. All others,
/// `service` above all, serve every protocol.
const SPEAKS_HTTP: [&str; 7] =
    ["front/http", "forward_auth", "deny_status", "allowed_origins", "cli", "spans", "testkit"];

pub(crate) fn check() -> Step {
    let architecture = read(Path::new("ARCHITECTURE.md"))?;
    let architecture = architecture.split_whitespace().collect::<Vec<_>>().join(" ");
    for layered in &CRATES {
        if !architecture.contains(&format!("`{}`", layered.order)) {
            return Err(format!(
                "ARCHITECTURE.md states another order of {}: `{}`",
                layered.source, layered.order
            ));
        }
        layered.check()?;
    }
    only_http_speaks_http()
}

/// Checks that no other module of the server names the types of HTTP.
fn only_http_speaks_http() -> Step {
    let uses = scan::uses_of(Path::new("crates/trypema-server/src"), &HTTP)?;
    for ((module, named), places) in &uses {
        let speaks = |listed: &&str| listed.split('/').next() == Some(module);
        let is_allowed = |place: &&String| {
            SPEAKS_HTTP
                .iter()
                .filter(|listed| speaks(listed))
                .any(|listed| place.contains(&format!("/src/{listed}")))
        };
        if let Some(place) = places.iter().find(|place| !is_allowed(place)) {
            return Err(format!("`{module}` names the crate `{named}`, but serves all protocols\n{place}"));
        }
    }
    Ok(())
}

impl Layered {
    fn check(&self) -> Step {
        let root = read(&Path::new(self.source).join("lib.rs"))?;
        let modules: BTreeSet<&str> =
            scan::modules(&root).filter(|module| !self.left_out.contains(module)).collect();
        let order: Vec<&str> = self.order.split([',', '→']).map(str::trim).collect();
        if modules != order.iter().copied().collect() {
            return Err(format!(
                "{}: the order names {order:?}, and the modules are {modules:?}",
                self.source
            ));
        }
        let imports = scan::imports_of(Path::new(self.source), &root)?;
        let place = |module: &str| order.iter().position(|listed| *listed == module);
        let is_backward = |importer: &str, imported: &str| place(importer) < place(imported);
        for ((importer, imported), places) in &imports {
            let is_exception =
                |exception: &Exception| exception.importer == importer && exception.imported == imported;
            if is_backward(importer, imported) && !self.exceptions.iter().any(is_exception) {
                let cycle = path(&imports, imported, importer);
                let cycle = cycle.map(|path| format!(", a cycle: {importer} → {}", path.join(" → ")));
                let (cycle, places) = (cycle.unwrap_or_default(), places.join("\n"));
                return Err(format!("`{importer}` imports `{imported}` against the order{cycle}\n{places}"));
            }
        }
        for Exception { importer, imported } in self.exceptions {
            if !imports.contains_key(&((*importer).to_owned(), (*imported).to_owned())) {
                return Err(format!("`{importer}` no longer imports `{imported}`: remove the exception"));
            }
        }
        let (count, exceptions) = (modules.len(), self.exceptions.len());
        println!("{count} modules of {} import in one direction ({exceptions} exceptions)", self.source);
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the shortest path from one module to another along imports.
fn path(imports: &Imports, from: &str, to: &str) -> Option<Vec<String>> {
    let mut paths = VecDeque::from([vec![from.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        let last = path.last()?.clone();
        if last == to {
            return Some(path);
        }
        if seen.insert(last.clone()) {
            let next = imports.keys().filter(|(importer, _)| *importer == last);
            paths.extend(next.map(|(_, imported)| [path.clone(), vec![imported.clone()]].concat()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_named() {
        let edge = |importer: &str, imported: &str| ((importer.to_owned(), imported.to_owned()), Vec::new());
        let imports = Imports::from([edge("app", "rules"), edge("rules", "cache"), edge("cache", "app")]);
        assert_eq!(path(&imports, "rules", "app").unwrap(), ["rules", "cache", "app"]);
        assert_eq!(path(&imports, "rules", "net"), None);
    }
}
