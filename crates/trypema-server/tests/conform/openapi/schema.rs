//! The subset of JSON Schema that the document uses. An unknown keyword fails the test, because it would not
//! be checked.

use serde_json::Value;

/// Keywords that do not restrict values, and `pattern`, which would need a regular expression engine.
const NOT_CHECKED: [&str; 8] =
    ["title", "description", "default", "example", "examples", "format", "$comment", "pattern"];

/// An OpenAPI document, to resolve references of schemas.
pub struct Document(pub Value);

impl Document {
    /// Returns the value behind a reference such as `#/components/schemas/Rule`.
    pub fn resolve(&self, reference: &str) -> Option<&Value> {
        self.0.pointer(reference.strip_prefix('#')?)
    }

    /// Returns the violations of a schema by a value, each with its place.
    pub fn faults(&self, schema: &Value, value: &Value, place: &str) -> Vec<String> {
        let fault = |text: String| vec![format!("{place}: {text} (is {value:.200})")];
        let object = match schema {
            Value::Bool(true) => return Vec::new(),
            Value::Bool(false) => return fault("nothing is allowed here".to_owned()),
            Value::Object(object) => object,
            other => panic!("{other} is no schema"),
        };
        if value.is_null() && object.get("nullable") == Some(&Value::Bool(true)) {
            return Vec::new();
        }
        let told = object.iter().flat_map(|(word, wanted)| match word.as_str() {
            "$ref" => {
                let target = wanted.as_str().and_then(|reference| self.resolve(reference));
                self.faults(target.unwrap_or_else(|| panic!("{wanted} leads nowhere")), value, place)
            }
            "allOf" => list(wanted).iter().flat_map(|part| self.faults(part, value, place)).collect(),
            "not" if self.faults(wanted, value, place).is_empty() => fault(format!("fits {wanted:.300}")),
            "anyOf" if self.fitting(wanted, value) == 0 => fault(format!("fits none of {wanted:.300}")),
            "oneOf" if self.fitting(wanted, value) != 1 => {
                fault(format!("fits {} of {wanted:.300}", self.fitting(wanted, value)))
            }
            "properties"
            | "required"
            | "dependentRequired"
            | "additionalProperties"
            | "propertyNames"
            | "maxProperties" => self.faults_of_object((word, wanted), object, (value, place)),
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                items
                    .flat_map(|(index, item)| self.faults(wanted, item, &format!("{place}[{index}]")))
                    .collect()
            }
            "anyOf" | "oneOf" | "not" | "nullable" => Vec::new(),
            _ if is_met(word, wanted, value) => Vec::new(),
            _ => fault(format!("needs {word} {wanted}")),
        });
        told.collect()
    }

    fn fitting(&self, schemas: &Value, value: &Value) -> usize {
        list(schemas).iter().filter(|schema| self.faults(schema, value, "").is_empty()).count()
    }

    fn faults_of_object(
        &self,
        (word, wanted): (&str, &Value),
        schema: &serde_json::Map<String, Value>,
        (value, place): (&Value, &str),
    ) -> Vec<String> {
        let Some(object) = value.as_object() else { return Vec::new() };
        let known = |name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
        let members = object.iter().map(|(name, member)| (name, member, format!("{place}.{name}")));
        match word {
            "required" => {
                let missing = list(wanted).iter().filter(|name| !object.contains_key(name.as_str().unwrap()));
                missing.map(|name| format!("{place}: {name} is missing")).collect()
            }
            "dependentRequired" => {
                let needing =
                    wanted.as_object().unwrap().iter().filter(|(name, _)| object.contains_key(*name));
                let needed = needing.flat_map(|(_, names)| list(names));
                let missing = needed.filter(|name| !object.contains_key(name.as_str().unwrap()));
                missing.map(|name| format!("{place}: {name} is missing")).collect()
            }
            "properties" => members
                .filter_map(|(name, member, place)| Some((wanted.get(name)?, member, place)))
                .flat_map(|(schema, member, place)| self.faults(schema, member, &place))
                .collect(),
            "additionalProperties" => members
                .filter(|(name, ..)| !known(name))
                .flat_map(|(_, member, place)| self.faults(wanted, member, &place))
                .collect(),
            "propertyNames" => {
                let names = object.keys().map(|name| Value::String(name.clone()));
                names.flat_map(|name| self.faults(wanted, &name, place)).collect()
            }
            _ if object.len() as u64 > wanted.as_u64().unwrap() => vec![format!("{place}: too many members")],
            _ => Vec::new(),
        }
    }
}

/// Whether a value satisfies a keyword that needs no other schema. A keyword for another type of value is
/// always satisfied.
fn is_met(word: &str, wanted: &Value, value: &Value) -> bool {
    let length = value.as_str().map(|text| text.chars().count() as u64);
    let count = value.as_array().map(|items| items.len() as u64);
    let bound = wanted.as_u64().unwrap_or_default();
    match word {
        "type" => match wanted {
            Value::Array(names) => names.iter().any(|name| is_of_type(name, value)),
            name => is_of_type(name, value),
        },
        "enum" => list(wanted).contains(value),
        "const" => wanted == value,
        "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
        "minLength" => length.is_none_or(|length| length >= bound),
        "maxLength" => length.is_none_or(|length| length <= bound),
        "minItems" => count.is_none_or(|count| count >= bound),
        "maxItems" => count.is_none_or(|count| count <= bound),
        word if NOT_CHECKED.contains(&word) => true,
        word => panic!("{word} is not understood"),
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_else(|| panic!("{value} is no list"))
}
