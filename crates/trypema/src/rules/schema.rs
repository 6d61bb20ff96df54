//! The JSON Schema of rules.

use schemars::generate::SchemaSettings;

use super::definition::Rules;

impl Rules {
    /// Returns the JSON Schema (draft 2020-12) of a rules file, for completion and checks in editors. The
    /// schema does not express everything that compiling checks, for example that ids are unique.
    ///
    /// ```
    /// let schema = trypema::rules::Rules::schema();
    /// assert!(schema.contains("token_bucket"));
    /// ```
    pub fn schema() -> String {
        let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Self>();
        schema.insert("description".into(), "A file of rules for Trypema.".into());
        // Required in a file, because a file without `rules` is probably the wrong file. Rules from a
        // database may be empty.
        schema.insert("required".into(), vec!["rules"].into());
        format!("{:#}\n", schema.as_value())
    }
}
