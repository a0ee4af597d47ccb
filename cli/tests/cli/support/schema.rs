// SPDX-License-Identifier: GPL-2.0

//! Holds documents against the schema files that are shipped.
//!
//! The files let newer versions add members. Here members that they do not name are errors, so that
//! nothing is printed that is not described.

use jsonschema::{Resource, Validator};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};

fn load(path: &Path) -> Value {
    let mut schema = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    close(&mut schema);
    schema
}

/// Forbids members that are not named.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && object.get("type") != Some(&json!("string")) {
                object.entry("additionalProperties").or_insert(json!(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schema")
}

/// Names of all schema files but the common one.
pub fn names() -> Vec<String> {
    let files = std::fs::read_dir(directory()).unwrap();
    let mut names: Vec<String> = files
        .map(|file| {
            file.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_string()
        })
        .filter(|name| name != "common")
        .collect();
    names.sort();
    names
}

/// The schema `schema/NAME.json`.
pub fn validator(name: &str) -> Validator {
    let common = Resource::from_contents(load(&directory().join("common.json"))).unwrap();
    jsonschema::options()
        .with_resource("urn:csd:1:common", common)
        .build(&load(&directory().join(format!("{name}.json"))))
        .unwrap()
}

/// Holds each line of `text` against a schema, and returns the documents.
pub fn check(name: &str, text: &str) -> Vec<Value> {
    let validator = validator(name);
    let documents: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for document in &documents {
        let errors: Vec<String> = validator
            .iter_errors(document)
            .map(|error| format!("{}: {error}", error.instance_path))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}\n{document:#}");
    }
    documents
}
