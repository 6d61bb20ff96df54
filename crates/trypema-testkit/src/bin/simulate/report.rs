//! Writes the results of simulations into the docs.

use std::path::Path;
use std::process::ExitCode;

use trypema_testkit::simulator::fleet::Network;

use crate::{day, hot_key};

/// The network between machines of one data centre.
pub(crate) const DATA_CENTRE: Network =
    Network { fastest_us: 150, slowest_us: 1_000, lost_requests: 0, lost_replies: 0, unsent: 0 };

/// A table for the page, and optionally a picture.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) picture: Option<Picture>,
}

/// A drawing, and the name of its file.
pub(crate) struct Picture {
    pub(crate) file: &'static str,
    pub(crate) svg: String,
}

/// Runs all simulations, and replaces the text between the marks of the page.
pub(crate) fn write() -> ExitCode {
    let sections = hot_key::sections().and_then(|mut sections| {
        sections.extend(day::sections()?);
        Ok(sections)
    });
    let written = sections
        .map_err(|error| error.to_string())
        .and_then(|sections| sections.into_iter().try_for_each(publish));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn publish(section: Section) -> Result<(), String> {
    let Section { name, text, picture } = section;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    println!("{name}\n\n{text}");
    if let Some(Picture { file, svg }) = picture {
        std::fs::write(docs.join("img").join(file), svg)
            .map_err(|error| format!("docs/img/{file} not written: {error}"))?;
    }
    let page = docs.join("scale.md");
    let before =
        std::fs::read_to_string(&page).map_err(|error| format!("docs/scale.md not read: {error}"))?;
    let after = replaced(&before, name, &text).ok_or(format!("docs/scale.md has no marks for `{name}`"))?;
    std::fs::write(&page, after).map_err(|error| format!("docs/scale.md not written: {error}"))
}

/// Returns the page with a new text between the marks of this name, or `None` if there are no such marks.
fn replaced(page: &str, name: &str, text: &str) -> Option<String> {
    let [first, last] = [format!("<!-- simulated: {name} -->\n"), format!("<!-- end of {name} -->\n")];
    let (before, rest) = page.split_once(&first)?;
    let (_, after) = rest.split_once(&last)?;
    Some(format!("{before}{first}\n{text}\n{last}{after}"))
}
