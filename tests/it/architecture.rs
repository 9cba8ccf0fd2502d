//! The rules of the house that the compiler does not hold (`ARCHITECTURE.md`): what thinks and
//! shows touches no machine, the rules stand on floors, and comments refer to what a
//! reader can find.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crates and folders that read and write nothing outside the program, read no clock and start no
/// thread.
const PURE: &[&str] = &[
    "crates/kvm",
    "crates/sample",
    "crates/judge",
    "crates/report",
    "crates/metrics",
    "src/ui",
];

/// The screen's edge: its event loop and the terminal's state.
const EDGE: &[&str] = &["src/ui/event_loop.rs", "src/ui/terminal/guard.rs"];

/// What pure code must not name.
const MACHINE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::os",
    "std::env",
    "std::process::Command",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "rustix::",
    "libc::",
    "procfs::",
];

/// Folders and files that nobody wrote for kvmtop by hand.
const NOT_OURS: &[&str] = &[
    "target",
    "snapshots",
    "tests/fixtures",
    "crates/report/uplot",
    "proptest-regressions",
    "Cargo.lock",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

/// The repository's text files: name relative to its root, text.
fn files() -> Vec<(String, String)> {
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
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        let hidden = name.starts_with('.') && !name.starts_with(".ci");
        if hidden || NOT_OURS.contains(&&*name) || name.ends_with("/target") {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.push((name, text));
        }
    }
}

/// Lines for which `is_wrong` holds, with their places.
fn lines(of: impl Fn(&str) -> bool, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let files = files()
        .into_iter()
        .filter(|(name, _)| of(name) && name != "tests/it/architecture.rs");
    files
        .flat_map(|(name, text)| {
            let wrong = text.lines().enumerate().filter(|(_, line)| is_wrong(line));
            wrong
                .map(|(n, line)| format!("{name}:{}: {}", n + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn is_code(name: &str) -> bool {
    let endings = [
        ".rs", ".py", ".sh", ".c", ".h", ".toml", ".js", ".css", ".html",
    ];
    name == "Makefile" || endings.iter().any(|end| name.ends_with(end))
}

/// Product code of the pure crates; unit tests at the end of a file are left out.
fn pure_code() -> impl Iterator<Item = (String, String)> {
    let pure = |name: &str| {
        PURE.iter().any(|folder| {
            name.strip_prefix(folder)
                .is_some_and(|r| r.starts_with('/'))
        })
    };
    files()
        .into_iter()
        .filter(move |(name, _)| pure(name) && is_code(name) && !EDGE.contains(&name.as_str()))
        .filter(|(name, _)| !name.contains("tests"))
        .map(|(name, text)| {
            (
                name,
                text.split("#[cfg(test)]\nmod ")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })
}

#[test]
fn what_thinks_and_shows_touches_no_machine() {
    let wrong: Vec<String> = pure_code()
        .flat_map(|(name, text)| {
            let code = text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim_start().starts_with("//"));
            let wrong = code.filter(|(_, line)| MACHINE.iter().any(|word| line.contains(word)));
            wrong
                .map(|(n, line)| format!("{name}:{}: {}", n + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The folders of `judge::lint`, the lowest floor first. A floor uses those below it.
const FLOORS: [&str; 5] = ["facts", "fixes", "incidents", "rules", "engine"];

/// The modules of `judge::lint` that the imports of each of its files name: floor and module,
/// `facts::guest`.
fn lint_imports() -> BTreeMap<String, BTreeSet<String>> {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in pure_code() {
        let Some(module) = name
            .strip_prefix("crates/judge/src/lint/")
            .and_then(|name| name.strip_suffix(".rs"))
        else {
            continue;
        };
        let folders: Vec<&str> = module.split('/').collect();
        let [floor, own, ..] = folders[..] else {
            continue;
        };
        let found = imports.entry(format!("{floor}::{own}")).or_default();
        for (at, start) in text.match_indices("crate::lint::") {
            // A macro's path is resolved where the macro is used.
            if text[..at].ends_with('$') {
                continue;
            }
            let path = &text[at + start.len()..];
            let words: Vec<&str> = path
                .split(|c: char| !c.is_ascii_lowercase() && c != '_' && c != ':')
                .collect();
            let mut modules = words.first().copied().unwrap_or_default().split("::");
            let (floor, module) = (
                modules.next().unwrap_or_default(),
                modules.next().unwrap_or_default(),
            );
            found.insert(format!("{floor}::{module}"));
        }
        if folders.len() == 2 {
            for path in text.split("use super::").skip(1) {
                let module = path
                    .split(|c: char| !c.is_ascii_lowercase() && c != '_')
                    .next()
                    .unwrap_or_default();
                found.insert(format!("{floor}::{module}"));
            }
        }
    }
    assert!(imports.len() > 30, "the rules were not found");
    imports
}

#[test]
fn rules_stand_on_floors() {
    let place = |module: &str| {
        FLOORS
            .iter()
            .position(|floor| module.split("::").next() == Some(floor))
    };
    let mut wrong = Vec::new();
    for (module, uses) in lint_imports() {
        let own = place(&module).unwrap_or_else(|| panic!("{module} is on no floor"));
        for used in uses {
            // What `lint` itself exports is of any floor.
            let Some(floor) = place(&used) else {
                wrong.push(format!("{module} uses {used} past its floor"));
                continue;
            };
            let is_other_family = FLOORS[own] == "rules" && floor == own && used != module;
            if floor > own || is_other_family {
                wrong.push(format!("{module} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn modules_of_a_floor_form_no_circle() {
    let mut imports = lint_imports();
    // The modules of these make one thing.
    imports.retain(|module, _| module.starts_with("facts::") || module.starts_with("engine::"));
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, uses) in &mut imports {
        uses.retain(|used| used != module && modules.contains(used) && !used.ends_with("::mod"));
    }
    while let Some(leaf) = imports
        .iter()
        .find(|(_, uses)| uses.is_empty())
        .map(|(module, _)| module.clone())
    {
        imports.remove(&leaf);
        for uses in imports.values_mut() {
            uses.remove(&leaf);
        }
    }
    assert!(imports.is_empty(), "these use each other: {imports:#?}");
}

/// What a comment refers to must be at hand: in the repository or on the public internet.
#[test]
fn no_comment_refers_to_a_document_that_is_not_here() {
    const NOTES: &[&str] = &[
        "DESIGN",
        "CONTRACT",
        "KNOWLEDGE",
        "REVIEW",
        "ANCHORS",
        "PEERS",
        "SCREENS",
        "CRATES",
    ];
    let is_rule_code = |word: &str| {
        word.split_once('-').is_some_and(|(letter, number)| {
            ["T", "A", "I", "S", "P", "M"].contains(&letter)
                && number.len() == 2
                && number.parse::<u8>().is_ok()
        })
    };
    let foreign = lines(
        |_| true,
        |line| {
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
            words
                .into_iter()
                .any(|word| NOTES.contains(&word) || is_rule_code(word))
        },
    );
    assert!(
        foreign.is_empty(),
        "references to what is not in the repository:\n{}",
        foreign.join("\n")
    );
}

/// Each crate and the program use all of their dependencies.
#[test]
fn every_dependency_is_used() {
    let renamed = [
        ("perf-event2", "perf_event"),
        ("perf-event-open-sys2", "perf_event_open_sys"),
    ];
    let files = files();
    for (manifest, text) in files.iter().filter(|(name, _)| {
        name == "Cargo.toml" || name.starts_with("crates/") && name.ends_with("Cargo.toml")
    }) {
        let table: toml::Table = text.parse().expect("a manifest");
        let folder = manifest.replace("Cargo.toml", "src/");
        let code: String = files
            .iter()
            .filter(|(name, _)| name.starts_with(&folder))
            .map(|(_, t)| t.as_str())
            .collect();
        for name in table
            .get("dependencies")
            .and_then(|d| d.as_table())
            .into_iter()
            .flat_map(|d| d.keys())
        {
            let ident = renamed
                .iter()
                .find(|(n, _)| n == name)
                .map_or(name.replace('-', "_"), |(_, i)| (*i).to_owned());
            assert!(
                code.contains(&format!("{ident}::")) || code.contains(&format!("use {ident}")),
                "{manifest}: {name} is not used"
            );
        }
    }
}

/// What a page puts between backticks.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn pages_name_files_and_keys_that_exist() {
    const FOLDERS: &[&str] = &[
        "assets/", "benches/", "crates/", "docs/", "fuzz/", "src/", "tests/",
    ];
    // It has letters for other things.
    const WITHOUT_KEYS: &str = "docs/columns.md";
    // The mark of a figure in README.md.
    const NO_KEY: &str = "u";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let keys = std::fs::read_to_string(root.join("docs/keys.md")).expect("the page of the keys");
    let mut wrong = Vec::new();
    for (name, page) in files() {
        if Path::new(&name)
            .extension()
            .is_none_or(|extension| extension != "md")
        {
            continue;
        }
        for word in quoted(&page) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            let is_pattern =
                word.contains(['*', ' ']) || word.chars().any(|c| c.is_ascii_uppercase());
            if is_path && !is_pattern && !root.join(word).exists() {
                wrong.push(format!("{name}: there is no {word}"));
            }
            let is_key = word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
            if is_key
                && name != WITHOUT_KEYS
                && word != NO_KEY
                && !keys.contains(&format!("`{word}`"))
            {
                wrong.push(format!("{name}: there is no key {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
