//! Makes `docs/kvmtop.schema.json` and the reference in `docs/json.md` of the types that `--json`
//! prints.

use super::doctor::DoctorJson;
use ::report::diff::Diff;
use ::report::document::{JsonDocument, JsonProfile};
use ::report::plan::JsonPlan;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::path::Path;

/// The definitions of whole outputs, the report first.
const OUTPUTS: [&str; 5] = ["report", "diff", "plan", "profile", "doctor"];

fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    generator.subschema_for::<JsonDocument>();
    generator.subschema_for::<Diff>();
    generator.subschema_for::<JsonPlan>();
    generator.subschema_for::<JsonProfile>();
    generator.subschema_for::<DoctorJson>();
    let mut definitions = serde_json::Map::new();
    for (name, mut definition) in generator.take_definitions(true) {
        let name = definition_name(&name);
        tidy(&mut definition, name != "compared");
        definitions.insert(name, definition);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "JSON output of kvmtop, schema 1",
        "description": "What `--batch`, `report`, `check`, `diff`, `plan`, `profile` and `doctor` \
            print with `--json`.",
        "anyOf": OUTPUTS.map(|name| json!({ "$ref": format!("#/$defs/{name}") })),
        "$defs": definitions,
    })
}

/// `JsonNodeMemory` as `node_memory`.
fn definition_name(type_name: &str) -> String {
    let mut name = String::new();
    for letter in type_name.trim_start_matches("Json").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Closes objects to further fields, makes absent fields other than null, and takes out what only
/// Rust knows.
fn tidy(value: &mut Value, is_positive: bool) {
    if let Value::Array(all) = value {
        all.iter_mut().for_each(|v| tidy(v, is_positive));
    }
    let Value::Object(map) = value else { return };
    let required = map.get("required").cloned().unwrap_or_default();
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if !required
                .as_array()
                .is_some_and(|all| all.contains(&json!(name)))
            {
                take_out_null(property);
            }
        }
        map.insert("additionalProperties".into(), json!(false));
    }
    map.retain(|key, word| key != "format" || word == "date-time" || word == "uri");
    if let Some(Value::String(name)) = map.get_mut("$ref") {
        *name = format!(
            "#/$defs/{}",
            definition_name(name.trim_start_matches("#/$defs/"))
        );
    }
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.replace('\n', " ");
        let types = map.get("type");
        let is_number = types.is_some_and(|t| t == "number" || *t == json!(["number", "null"]));
        if is_number && is_positive {
            map.entry("minimum").or_insert(json!(0));
        }
    }
    map.values_mut().for_each(|v| tidy(v, is_positive));
}

fn take_out_null(property: &mut Value) {
    if let Some([name, null]) = property["type"].as_array().map(Vec::as_slice)
        && null == "null"
    {
        property["type"] = name.clone();
    }
    let Some([inner, _null]) = property["anyOf"].as_array().map(Vec::as_slice) else {
        return;
    };
    let mut inner = inner.clone();
    inner["description"] = property["description"].clone();
    *property = inner;
}

/// The definition that a property refers to: directly, through its items or through the first
/// option of `anyOf`.
fn referred(property: &Value) -> Option<&str> {
    let direct = [
        &property["$ref"],
        &property["items"]["$ref"],
        &property["anyOf"][0]["$ref"],
    ];
    direct
        .iter()
        .find_map(|name| name.as_str())
        .map(|name| name.trim_start_matches("#/$defs/"))
}

/// The fields of a definition in the order of the output; fields that may be absent come last.
fn fields_of(definition: &Value) -> Vec<(&str, &Value)> {
    let Some(properties) = definition["properties"].as_object() else {
        return Vec::new();
    };
    let required = definition["required"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut fields: Vec<(&str, &Value)> = properties
        .iter()
        .map(|(name, p)| (name.as_str(), p))
        .collect();
    fields.sort_by_key(|(name, _)| {
        required
            .iter()
            .position(|r| r == name)
            .unwrap_or(usize::MAX)
    });
    fields
}

/// A table for the report and each definition that it reaches, in the order in which they refer to
/// them.
fn reference(schema: &Value) -> String {
    let mut names = vec![OUTPUTS[0]];
    let mut out = String::new();
    let mut next = 0;
    while let Some(name) = names.get(next).copied() {
        next += 1;
        let definition = &schema["$defs"][name];
        let fields = fields_of(definition);
        let new = fields.iter().filter_map(|(_, property)| referred(property));
        for new in new.collect::<Vec<_>>() {
            if !names.contains(&new) {
                names.push(new);
            }
        }
        if fields.is_empty() {
            continue;
        }
        out += &format!("\n### {name}\n\n{}\n\n", text(definition));
        out += "| field | meaning |\n|---|---|\n";
        for (field, property) in fields {
            let link =
                referred(property).filter(|inner| !fields_of(&schema["$defs"][inner]).is_empty());
            let link = link
                .map(|inner| format!(" [{inner}](#{inner})"))
                .unwrap_or_default();
            out += &format!("| `{field}` | {}{link} |\n", text(property));
        }
    }
    out
}

fn text(described: &Value) -> String {
    described["description"]
        .as_str()
        .expect("a description")
        .replace('|', "\\|")
}

/// `make accept` writes both files.
#[test]
fn the_schema_and_its_reference_are_those_of_the_types() {
    const HEADING: &str = "## Every field\n";
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let schema = schema();
    let page = std::fs::read_to_string(docs.join("json.md")).unwrap();
    let (prose, _) = page
        .split_once(HEADING)
        .expect("the heading of the reference");
    let files = [
        (
            "kvmtop.schema.json",
            serde_json::to_string_pretty(&schema).unwrap() + "\n",
        ),
        ("json.md", format!("{prose}{HEADING}{}", reference(&schema))),
    ];
    for (name, content) in files {
        if std::env::var_os("KVMTOP_ACCEPT").is_some() {
            std::fs::write(docs.join(name), &content).unwrap();
        }
        assert!(
            std::fs::read_to_string(docs.join(name)).unwrap() == content,
            "docs/{name} is old: run `make accept`"
        );
    }
}
