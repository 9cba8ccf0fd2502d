//! The repository's text files.

use std::path::Path;

/// Source code that is not generated: name relative to the repository, text.
pub fn code_files() -> Vec<(String, String)> {
    let code = |name: &str| {
        let endings = [".rs", ".py", ".sh", ".c", ".h", ".toml", ".js", ".css", ".html"];
        name == "Makefile" || endings.iter().any(|end| name.ends_with(end))
    };
    all_files().into_iter().filter(|(name, _)| code(name)).collect()
}

/// Everything that a person wrote for kvmtop: code, documentation, configuration. Recorded input of tests is left out.
pub fn all_files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(root, root, &mut found);
    assert!(found.len() > 100, "the repository's files were not found");
    found.sort();
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && name != ".ci" && !name.starts_with(".ci/");
        if hidden
            || [
                "target",
                "snapshots",
                "tests/fixtures",
                "assets/uplot",
                "proptest-regressions",
                "Cargo.lock",
                "LICENSE-MIT",
                "LICENSE-APACHE",
            ]
            .contains(&&*name)
        {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.push((name, text));
        }
    }
}

/// Mentions of notes that the project was planned with, and of the rule codes that they use.
pub fn foreign_documents(line: &str) -> Vec<&str> {
    const NOTES: &[&str] = &["DESIGN", "CONTRACT", "KNOWLEDGE", "REVIEW", "ANCHORS", "PEERS", "SCREENS", "CRATES"];
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    words.filter(|w| NOTES.contains(w) || is_rule_code(w)).collect()
}

/// Such as `T-01`.
fn is_rule_code(word: &str) -> bool {
    let Some((letter, number)) = word.split_once('-') else { return false };
    ["T", "A", "I", "S", "P", "M"].contains(&letter) && number.len() == 2 && number.chars().all(|c| c.is_ascii_digit())
}
