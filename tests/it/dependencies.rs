//! Where the dependencies come from and under which licences, by `deny.toml`: what cargo-deny
//! checks, without it.

use serde_json::Value;
use spdx::{Expression, ParseMode};
use std::process::Command;

/// The packages that a target is built from, tests included.
fn packages(target: &str) -> Vec<Value> {
    let out = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--filter-platform",
            target,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let Value::Array(packages) =
        serde_json::from_slice::<Value>(&out.stdout).expect("JSON")["packages"].take()
    else {
        panic!("cargo metadata names no packages");
    };
    packages
}

fn texts(list: &toml::Value) -> Vec<String> {
    list.as_array()
        .expect("a list")
        .iter()
        .map(|text| text.as_str().expect("a text").to_owned())
        .collect()
}

#[test]
fn every_licence_and_source_is_one_that_is_allowed() {
    let rules: toml::Table = include_str!("../../deny.toml").parse().expect("deny.toml");
    let allowed = texts(&rules["licenses"]["allow"]);
    let exceptions = rules["licenses"]["exceptions"].as_array().expect("a list");
    let registries = texts(&rules["sources"]["allow-registry"]);
    let mut wrong = Vec::new();
    let packages = packages("x86_64-unknown-linux-gnu");
    assert!(packages.len() > 100, "{} packages", packages.len());
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or("none");
        let excepted = exceptions
            .iter()
            .find(|exception| exception["crate"].as_str() == Some(name));
        let allowed = [
            &allowed[..],
            &excepted.map(|e| texts(&e["allow"])).unwrap_or_default(),
        ]
        .concat();
        let known = Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|wanted| allowed.iter().any(|a| *a == wanted.to_string()))
        });
        if !known {
            wrong.push(format!("{name}: licence {licence}"));
        }
        // Without a source it is kvmtop itself.
        if let Some(source) = package["source"].as_str()
            && !registries
                .iter()
                .any(|registry| source.strip_prefix("registry+") == Some(registry))
        {
            wrong.push(format!("{name}: from {source}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "deny.toml does not allow:\n{}",
        wrong.join("\n")
    );
}
