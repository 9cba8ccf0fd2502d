//! The hourglass holds: imports go one way, and nothing that thinks or shows touches the machine.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn sources(room: &str) -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for path in entries.map(|e| e.expect("entry").path()) {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("source");
                found.push((path, text));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root.join(room), &mut found);
    let file = root.join(format!("{room}.rs"));
    if let Ok(text) = std::fs::read_to_string(&file) {
        found.push((file, text));
    }
    found
}

/// The code of a file, without comments and without its tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..end].lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//"))
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "tests")
        || path.file_stem().is_some_and(|s| s == "tests" || s == "fixture")
}

fn forbid(room: &str, words: &[&str], except: &[&str]) {
    let mut broken = Vec::new();
    let files = sources(room);
    assert!(!files.is_empty(), "src/{room} is empty: the rule would hold for nothing");
    for (path, text) in files {
        if is_test_file(&path) || except.iter().any(|e| path.ends_with(e)) {
            continue;
        }
        for (n, line) in code(&text) {
            for word in words {
                if line.contains(word) {
                    broken.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "src/{room} must not use these:\n{}", broken.join("\n"));
}

const MACHINE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process::Command",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "rustix::",
    "libc::",
    "procfs::",
];

#[test]
fn what_is_right_of_the_waist_touches_no_machine() {
    for room in ["sample", "kvm", "model", "lint", "report"] {
        forbid(room, MACHINE, &[]);
    }
    // The loop, the feeder's thread and the terminal guard are the screen's edge; all that draws and decides lies behind them.
    forbid("ui", MACHINE, &["run.rs", "feeder.rs", "terminal.rs"]);
}

#[test]
fn imports_go_one_way() {
    forbid(
        "kvm",
        &["crate::sample", "crate::source", "crate::model", "crate::lint", "crate::ui", "crate::report"],
        &[],
    );
    forbid("sample", &["crate::source", "crate::model", "crate::lint", "crate::ui", "crate::report"], &[]);
    forbid("model", &["crate::source", "crate::lint", "crate::ui", "crate::report", "crate::cli"], &[]);
    forbid("lint", &["crate::source", "crate::ui", "crate::report", "crate::cli"], &[]);
    forbid("source", &["crate::model", "crate::lint", "crate::ui", "crate::report", "crate::cli"], &[]);
    forbid("report", &["crate::source", "crate::ui"], &[]);
    forbid("session", &["crate::source", "crate::model", "crate::lint", "crate::ui", "crate::report"], &[]);
}
