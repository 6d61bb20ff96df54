//! The JSON Schema of rules, for editors.

use schemars::generate::SchemaSettings;

use super::definition::Rules;

impl Rules {
    /// The JSON Schema (draft 2020-12) of a file of rules: editors complete and check with it. What it cannot say,
    /// such as that an id is used once, only compiling tells.
    ///
    /// ```
    /// let schema = trypema::rules::Rules::schema();
    /// assert!(schema.contains("token_bucket"));
    /// ```
    pub fn schema() -> String {
        let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Self>();
        schema.insert("description".into(), "A file of rules for Trypema.".into());
        // Databases may have none; a file that does not mention them is taken for the wrong file.
        schema.insert("required".into(), vec!["rules"].into());
        format!("{:#}\n", schema.as_value())
    }
}
