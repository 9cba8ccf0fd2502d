//! The rules of the house (`ARCHITECTURE.md`), held by reading `src` as a program and all text as text.

mod circles;
mod crate_map;
mod text;

use self::crate_map::CrateMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

static HOUSE: LazyLock<CrateMap> = LazyLock::new(|| CrateMap::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));

/// The top folders of `src` and the other top folders that each may import.
const FOLDERS: &[(&str, &[&str])] = &[
    ("kvm", &[]),
    ("sample", &["kvm"]),
    ("session", &["kvm", "sample"]),
    ("source", &["kvm", "sample", "session"]),
    ("model", &["kvm", "sample"]),
    ("placement", &["kvm"]),
    ("lint", &["kvm", "sample", "model", "placement", "figures"]),
    ("analysis", &["kvm", "sample", "model", "lint"]),
    ("metrics", &["kvm", "sample", "model", "lint", "analysis"]),
    // How figures are printed; used by whatever prints.
    ("figures", &[]),
    ("report", &["kvm", "sample", "model", "placement", "lint", "figures", "analysis"]),
    ("ui", &["kvm", "sample", "model", "lint", "figures", "analysis", "report"]),
    // The config file names columns, keys and themes.
    ("cli", &["session", "lint", "analysis", "ui"]),
    (
        "command",
        &[
            "kvm", "sample", "session", "source", "model", "lint", "figures", "analysis", "metrics", "report", "ui",
            "cli",
        ],
    ),
    ("lib", &["command"]),
];

/// Folders that neither read nor write anything outside the program, ask no clock and start no thread.
const PURE: &[&str] =
    &["kvm", "sample", "model", "placement", "lint", "figures", "analysis", "metrics", "report", "ui"];
/// The screen's edge: its event loop and the terminal's state.
const EDGE: &[&str] = &["ui/event_loop.rs", "ui/terminal.rs"];
/// What a pure folder must not name.
const MACHINE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::os",
    "std::env",
    "std::process::Command",
    "std::thread",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "rustix",
    "libc",
    "procfs",
];

fn folder(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or(file)
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}: {}\n{}", found.len(), found.join("\n"));
}

#[test]
fn folders_import_only_what_stands_below_them() {
    let mut wrong = BTreeSet::new();
    for import in &HOUSE.imports {
        let (from, to) = (folder(&import.at.file), folder(&import.of));
        let allowed = FOLDERS.iter().find(|(name, _)| *name == from);
        if from != to && !allowed.is_some_and(|(_, allowed)| allowed.contains(&to)) {
            wrong.insert(format!("{}: src/{from} must not import {} of {to}", import.at, import.item));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn every_folder_has_its_place_in_the_order() {
    let known: BTreeSet<&str> = FOLDERS.iter().map(|(name, _)| *name).collect();
    let unknown: BTreeSet<&str> =
        HOUSE.files.iter().map(|f| folder(f)).filter(|f| *f != "main" && !known.contains(f)).collect();
    assert!(unknown.is_empty(), "say in FOLDERS what these may import: {unknown:?}");
}

#[test]
fn what_thinks_and_shows_touches_no_machine() {
    let pure = |file: &str| PURE.contains(&folder(file)) && !EDGE.contains(&file);
    let names = |path: &str, word: &str| path == word || path.strip_prefix(word).is_some_and(|r| r.starts_with("::"));
    let wrong: BTreeSet<String> = HOUSE
        .outside
        .iter()
        .filter(|o| pure(&o.at.file) && MACHINE.iter().any(|word| names(&o.path, word)))
        .map(|o| format!("{}: {}", o.at, o.path))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

/// A file may use what a `mod.rs` above it defines: that is where the files of a folder share. All other ways back are
/// circles.
#[test]
fn no_file_imports_itself_by_way_of_another() {
    let imports: Vec<_> = HOUSE.imports.iter().filter(|i| !is_above(&i.of, &i.at.file)).cloned().collect();
    let circles: Vec<String> = circles::circles(&imports).iter().map(ToString::to_string).collect();
    assert_none("Circles of imports", &circles);
}

/// Whether the module of the first file contains that of the second: `model/mod.rs` or `model.rs` that of
/// `model/cpu.rs`.
fn is_above(file: &str, below: &str) -> bool {
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
    below.strip_prefix(module).is_some_and(|rest| rest.starts_with('/'))
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut places = BTreeMap::<&str, Vec<String>>::new();
    for t in &HOUSE.types {
        places.entry(&t.name).or_default().push(t.at.to_string());
    }
    let twice: Vec<String> = places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert_none("Type names with several meanings", &twice);
}

#[test]
fn no_line_is_wider_than_120_columns() {
    let wide: Vec<String> = text::code_files()
        .iter()
        .flat_map(|(name, text)| text.lines().enumerate().map(move |(n, line)| (name, n + 1, line.chars().count())))
        .filter(|(.., columns)| *columns > 120)
        .map(|(name, line, columns)| format!("{name}:{line}: {columns} columns"))
        .collect();
    assert_none("Lines beyond 120 columns", &wide);
}

/// "Told" hides whether something is reported, known, encoded, distinguished or counted: say which.
#[test]
fn src_says_what_it_means() {
    let vague = |line: &str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("told"));
    let found: Vec<String> = text::code_files()
        .iter()
        .filter(|(name, _)| name.starts_with("src/"))
        .flat_map(|(name, text)| text.lines().enumerate().map(move |(n, line)| (name, n + 1, line)))
        .filter(|(.., line)| vague(line))
        .map(|(name, n, line)| format!("{name}:{n}: {}", line.trim()))
        .collect();
    assert_none("Vague words", &found);
}

/// What a comment refers to must be at hand: in the repository or on the public internet.
#[test]
fn no_comment_refers_to_a_document_that_is_not_here() {
    let mut found = Vec::new();
    for (name, text) in text::all_files() {
        // Says itself what the rules forbid.
        if name.starts_with("tests/it/architecture") {
            continue;
        }
        for (n, line) in text.lines().enumerate() {
            for word in text::foreign_documents(line) {
                found.push(format!("{name}:{}: {word}", n + 1));
            }
        }
    }
    assert_none("References to what is not in the repository", &found);
}

/// The drawing at the top of `lib.rs` and in `ARCHITECTURE.md` names modules that exist.
#[test]
fn drawings_name_what_exists() {
    let modules = HOUSE.files.iter().map(|file| crate_map::module_name(file));
    let known: BTreeSet<String> = modules.chain(HOUSE.items.iter().cloned()).collect();
    // A type may be re-exported by the folder that it is in.
    let types: BTreeSet<&str> = HOUSE.types.iter().map(|t| t.name.as_str()).collect();
    let pages = [include_str!("../../../src/lib.rs"), include_str!("../../../ARCHITECTURE.md")];
    let words = pages.iter().flat_map(|page| page.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')));
    let mut named = 0;
    for word in words.filter(|w| FOLDERS.iter().any(|(folder, _)| w.starts_with(&format!("{folder}::")))) {
        named += 1;
        let word = word.trim_end_matches(':');
        let last = word.rsplit("::").next().unwrap_or_default();
        assert!(known.contains(word) || types.contains(last), "there is no {word}");
    }
    assert!(named > 10);
}

/// What only tests need is a dev-dependency; what nothing needs is gone.
#[test]
fn the_program_uses_each_of_its_dependencies() {
    let manifest: toml::Table = include_str!("../../../Cargo.toml").parse().expect("Cargo.toml");
    let dependencies = manifest["dependencies"].as_table().expect("dependencies");
    // The name in code, where it is not the package's own.
    let renamed = BTreeMap::from([("perf-event2", "perf_event"), ("perf-event-open-sys2", "perf_event_open_sys")]);
    let unused: Vec<&String> = dependencies
        .keys()
        .filter(|name| {
            let in_code = renamed.get(name.as_str()).map_or_else(|| name.replace('-', "_"), ToString::to_string);
            !HOUSE.first_names.contains(&in_code)
        })
        .collect();
    assert!(unused.is_empty(), "no product code uses {unused:?}");
}
