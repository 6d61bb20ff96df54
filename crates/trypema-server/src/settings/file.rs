//! The configuration file.

use std::path::Path;

use trypema::rules::{Document, InvalidRules, Parsed};

use super::{InvalidConfig, InvalidSetting, SettingOrigin, Settings};

/// The settings of a configuration file, and its problems.
#[derive(Debug, Default)]
pub(crate) struct SettingsFile {
    /// The settings, without those that could not be read.
    pub(crate) settings: Settings,
    pub(crate) invalid: InvalidConfig,
    name: String,
    text: String,
}

impl SettingsFile {
    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Self {
        let mut file = Self { name: path.display().to_string(), ..Self::default() };
        match std::fs::read_to_string(path) {
            Ok(text) => file.text = text,
            Err(error) => file.refuse(InvalidSetting::new("", error.to_string()), None),
        }
        let text = std::mem::take(&mut file.text);
        let problems = match Document::from_yaml(&text) {
            Ok(document) if document.is_empty() => None,
            Ok(document) => {
                let Parsed { value, invalid, .. } = document.read();
                file.settings = value.unwrap_or_default();
                invalid
            }
            Err(invalid) => Some(invalid),
        };
        for problem in problems.iter().flat_map(InvalidRules::problems) {
            let setting = InvalidSetting::new(problem.field().to_string(), problem.reason());
            file.refuse(setting, problem.line());
        }
        if let Some(more) = problems.map(|invalid| invalid.more()).filter(|more| *more > 0) {
            file.refuse(InvalidSetting::new("", format!("and {more} more problems")), None);
        }
        file.text = text;
        file
    }

    fn refuse(&mut self, setting: InvalidSetting, line: Option<u64>) {
        let origin = Some(SettingOrigin::File { file: self.name.clone(), line });
        self.invalid.add(InvalidSetting { origin, ..setting });
    }

    /// Returns the place of a setting in the file, if the file has it.
    pub(crate) fn origin_of(&self, setting: &str) -> Option<SettingOrigin> {
        let document = Document::from_yaml(&self.text).ok()?;
        let line = document.line_of(setting.split('.'));
        line.map(|_| SettingOrigin::File { file: self.name.clone(), line })
    }
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid. The error names the line and the setting of each problem.
    pub fn read(path: &Path) -> Result<Self, InvalidConfig> {
        let SettingsFile { settings, invalid, .. } = SettingsFile::read(path);
        if invalid.is_empty() { Ok(settings) } else { Err(invalid) }
    }
}
