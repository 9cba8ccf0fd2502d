//! Every text of the real cases as people paste it: numbered, quoted, indented, coloured, spaced. What is found in it
//! stays the same.

use import::ImportOptions;
use judge::lint::{Finding, InputKind, Options, RuleMemory, run};
use judge::model::{Base, Model};

/// A text as it looks after it was shown or copied in some way.
type Decoration = (&'static str, fn(&str) -> String);

const DECORATIONS: &[Decoration] = &[
    ("cat -n", |text| numbered(text, |n, line| format!("{n:6}\t{line}"))),
    ("cat -n, tabs turned into spaces", |text| numbered(text, |n, line| format!("{n:6}  {line}"))),
    ("bat", |text| numbered(text, |n, line| format!("{n:4} │ {line}"))),
    ("a bar", |text| numbered(text, |n, line| format!("{n} | {line}"))),
    ("grep -n", |text| numbered(text, |n, line| format!("{n}:{line}"))),
    ("a colon", |text| numbered(text, |n, line| format!("{n}: {line}"))),
    ("a point", |text| numbered(text, |n, line| format!("  {n}. {line}"))),
    ("an editor", |text| counted(text, |n, line| format!("{n:>3} {line}"))),
    ("a part of it in an editor", |text| counted(text, |n, line| format!("{:>5}: {line}", n + 94))),
    ("numbers on lines of their own", |text| numbered(text, |n, line| format!("{n}\n{line}"))),
    ("an added file", |text| each(text, |line| format!("+{line}"))),
    ("a diff", |text| {
        let n = text.lines().count();
        format!(
            "diff --git a/x b/x\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,{n} @@\n{}",
            each(text, |line| format!("+{line}"))
        )
    }),
    ("a quote", |text| each(text, |line| format!("> {line}"))),
    ("a quote's quote", |text| each(text, |line| format!("> > {line}"))),
    ("a bar before each line", |text| each(text, |line| format!("| {line}"))),
    ("docker compose logs", |text| each(text, |line| format!("windows-1  | {line}"))),
    ("blank lines", |text| each(text, |line| format!("{line}\n"))),
    ("spaces", |text| each(text, |line| format!("    {line}"))),
    ("a tab", |text| each(text, |line| format!("\t{line}"))),
    ("trailing spaces", |text| each(text, |line| format!("{line}   "))),
    ("colours", |text| each(text, |line| format!("\u{1b}[0;32m{line}\u{1b}[0m\u{1b}[K"))),
    ("colours without their escape", |text| each(text, |line| format!("[0;32m{line}[0m"))),
    ("CRLF", |text| each(text, |line| format!("{line}\r"))),
    ("numbers in a quote", |text| numbered(text, |n, line| format!("> {n:6}\t{line}"))),
    ("a quote of mail from Windows", |text| each(text, |line| format!("> {line}\r"))),
    ("indented numbers", |text| numbered(text, |n, line| format!("    {n}: {line}"))),
];

fn each(text: &str, change: impl Fn(&str) -> String) -> String {
    text.lines().map(|line| change(line) + "\n").collect()
}

fn numbered(text: &str, change: impl Fn(usize, &str) -> String) -> String {
    text.lines().enumerate().map(|(n, line)| change(n + 1, line) + "\n").collect()
}

/// As [`numbered`], where the lines show that they are counted: these are no rows of a table that begin with a number.
fn counted(text: &str, change: impl Fn(usize, &str) -> String) -> String {
    let rows = text.lines().all(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    if rows || text.lines().count() < 3 { text.to_owned() } else { numbered(text, change) }
}

/// The cases' names and files.
fn cases() -> Vec<(String, Vec<(String, String)>)> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cases")).unwrap();
    let mut all: Vec<_> = folder
        .map(|entry| {
            let path = entry.unwrap().path();
            let case: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
            let files = case["files"].as_table().unwrap().iter();
            let files = files.map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned()));
            (path.file_stem().unwrap().to_string_lossy().into_owned(), files.collect::<Vec<_>>())
        })
        .collect();
    // The soft line breaks of a raw mail are its outermost encoding: nothing is put on lines before they are joined.
    all.retain(|(_, files)| !files.iter().any(|(_, text)| text.contains("=\n")));
    assert!(all.len() > 100, "{} cases", all.len());
    all.sort();
    all
}

/// What is found in a case's files, each changed in a way.
fn findings(files: &[(String, String)], change: fn(&str) -> String) -> Result<Vec<Finding>, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), change(text)).unwrap();
    }
    let imported = import::load(&[folder.path().to_owned()], &ImportOptions::default());
    if let Some(error) = imported.errors.first() {
        return Err(error.what.clone());
    }
    let model = Model::new(&imported.sample, Base::Whole(imported.base));
    let options = Options { input: InputKind::File, ..Options::default() };
    Ok(run(&model, &mut RuleMemory::default(), &options).findings)
}

#[test]
fn what_is_found_does_not_depend_on_how_it_was_pasted() {
    let cases: Vec<_> = cases();
    let plain: Vec<_> = cases.iter().map(|(_, files)| findings(files, str::to_owned)).collect();
    let mut failed = Vec::new();
    for (what, change) in DECORATIONS {
        let mut of_this = 0;
        for ((name, files), plain) in cases.iter().zip(&plain) {
            let found = findings(files, *change);
            if found != *plain {
                of_this += 1;
                let rules = |all: &Result<Vec<Finding>, String>| match all {
                    Ok(all) => format!("{:?}", all.iter().map(|f| f.rule).collect::<Vec<_>>()),
                    Err(error) => error.chars().take(60).collect(),
                };
                failed.push(format!("{what}: {name}: {} instead of {}", rules(&found), rules(plain)));
            }
        }
        eprintln!("{what}: {of_this} differ");
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
