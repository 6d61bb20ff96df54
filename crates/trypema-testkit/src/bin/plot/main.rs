//! `cargo xtask plot <picture>`: draws the pictures of the docs from simulations.
//!
//! The same code always draws the same bytes, so a picture that changes in a diff shows a change of
//! behaviour.

mod panel;
mod scene;
mod strategies;
mod suppressed;

use std::path::Path;
use std::process::ExitCode;

use trypema::TrypemaError;

const HELP: &str = "\
plot <picture>

  suppressed    docs/img/suppressed.svg: the suppressed strategy at 1.3, 2, 5 and 50 times its limit
  strategies    docs/img/strategies.svg: how each strategy admits a burst followed by steady overload
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let picture = match words.as_slice() {
        ["suppressed"] => suppressed::picture(),
        ["strategies"] => strategies::picture(),
        _ => {
            eprint!("{HELP}");
            return ExitCode::FAILURE;
        }
    };
    match picture.map_err(|error| error.to_string()).and_then(Picture::publish) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// A picture, and its numbers as a Markdown table.
struct Picture {
    file_name: &'static str,
    svg: String,
    markdown: String,
}

type Drawn = Result<Picture, TrypemaError>;

impl Picture {
    /// Writes the picture into the docs, and prints the numbers.
    fn publish(self) -> Result<(), String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/img");
        let file = folder.join(self.file_name);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&file, self.svg))
            .map_err(|error| format!("docs/img/{} not written: {error}", self.file_name))?;
        println!("docs/img/{} written\n\n{}", self.file_name, self.markdown);
        Ok(())
    }
}
